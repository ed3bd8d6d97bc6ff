//! The lists of a server, bounded in time and in pages: a server that does not answer, or that goes on for ever, holds up nobody for
//! longer.

use rmcp::ServiceError;
use rmcp::model::{PaginatedRequestParams, Resource, ResourceTemplate};

use super::catalogue::OfServer;
use super::upstream::Upstream;

/// The largest number of pages of one list.
const PAGES: usize = 1000;

type Page<T> = Result<(Vec<T>, Option<String>), ServiceError>;

/// All pages of a list.
///
/// # Errors
/// The reason why the list is not known.
async fn pages<T, F>(page: impl Fn(Option<PaginatedRequestParams>) -> F + Send) -> Result<Vec<T>, String>
where
    T: Send,
    F: Future<Output = Page<T>> + Send,
{
    let (mut all, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let (items, next) = page(params).await.map_err(|error| error.to_string())?;
        all.extend(items);
        if next.is_none() {
            return Ok(all);
        }
        cursor = next;
    }
    Err(format!("a list of it has more than {PAGES} pages"))
}

/// The pages of one of a peer's lists.
macro_rules! all {
    ($peer:expr, $list:ident, $items:ident) => {{
        let peer = $peer.clone();
        pages(move |params| {
            let peer = peer.clone();
            async move {
                let listed = peer.$list(params).await?;
                Ok((listed.$items, listed.next_cursor))
            }
        })
    }};
}

impl Upstream {
    /// The tools and prompts of the server. `None` if it does not list them now; then it is left alone for a while.
    pub(super) async fn lists(&self) -> Option<OfServer> {
        let peer = self.peer_unless_down().await?;
        let can = peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        let listing = async {
            let tools = if can.tools.is_some() { all!(peer, list_tools, tools).await? } else { Vec::new() };
            let prompts =
                if can.prompts.is_some() { all!(peer, list_prompts, prompts).await? } else { Vec::new() };
            Ok(OfServer { server: self.number, config: self.config.clone(), tools, prompts })
        };
        match self.in_time(listing).await {
            Ok(lists) => Some(lists),
            Err(why) => {
                tracing::warn!(server = self.name(), why, "MCP server did not list its tools");
                self.rest(format!("the server {:?} does not list its tools: {why}", self.name())).await;
                None
            }
        }
    }

    /// The resources of the server, if it lists them now.
    pub(super) async fn resources(&self) -> Vec<Resource> {
        let Some(peer) = self.with_resources().await else { return Vec::new() };
        self.in_time(all!(peer, list_resources, resources)).await.unwrap_or_default()
    }

    /// The resource templates of the server, if it lists them now.
    pub(super) async fn resource_templates(&self) -> Vec<ResourceTemplate> {
        let Some(peer) = self.with_resources().await else { return Vec::new() };
        self.in_time(all!(peer, list_resource_templates, resource_templates)).await.unwrap_or_default()
    }
}

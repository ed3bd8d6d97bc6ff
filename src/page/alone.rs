//! A page that stands alone in a file: the style is inside of it, and it has neither script nor anything from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::harmless::harmless;

/// The style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("app.css");

/// What a browser may load for the page: nothing but the style inside of it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A whole page. Text of others in it is escaped by the templates; what could hide it, such as marks that turn the direction of
/// writing, is shown here.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · counterfoil" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { span.brand { "counterfoil" } }
                main { (body) }
            }
        }
    };
    harmless(&whole.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_shows_what_others_wrote_as_text() {
        let page = page("<b>", &html! { p { "<script>\u{202e}" } });
        assert!(page.contains("<title>&lt;b&gt; · counterfoil</title>"), "{page}");
        assert!(page.contains("<p>&lt;script&gt;\\u{202e}</p>"), "{page}");
        assert!(page.contains(STYLE) && !STYLE.contains('<'), "the style is text of its own, as it is");
        assert!(
            ["<script", "<link", "http://", "https://", "url(", "@import"]
                .iter()
                .all(|part| !page.contains(part))
        );
    }
}

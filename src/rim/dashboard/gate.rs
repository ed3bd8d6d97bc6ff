//! The gate before each page: it finds out who looks, checks that a form is the dashboard's own, and tells of refusals in words.
//! Behind it a page finds its [`Site`] and the tenant's client among the request's extensions.

use axum::Form;
use axum::body::Bytes;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequest as _, OriginalUri, RawPathParams, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{Method, StatusCode};
use maud::html;

use super::layout;
use super::session::{Cookies, add};
use super::site::{Site, escaped};
use crate::rim::api::{Failed, Problem, Reach, Refusal, Shared, tenant};

/// The gate of one page.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) door: crate::rim::api::Gate,
    /// True if a proxy in front of the server speaks TLS.
    pub(super) behind_tls: bool,
}

/// The fields of the forms that a person types into, apart from the token.
const TYPED: [&str; 2] = ["with", "reason"];

/// A browser obeys these on every page: nothing from elsewhere, no script or style within a page, no frame around it.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    (X_FRAME_OPTIONS, "DENY"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers of a page to every response.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

impl Gate {
    pub(super) fn before(self, handler: MethodRouter) -> MethodRouter {
        handler.layer(from_fn_with_state(self, pass))
    }
}

/// The site of a request, of which nobody is known to look at it yet.
pub(super) fn site(request: &Parts, asked: &OriginalUri, cookies: &Cookies, shared: &Shared) -> Site {
    Site {
        base: Site::base(&asked.0, &request.uri),
        path: request.uri.path().to_owned(),
        caller: None,
        tenant: None,
        form_secret: cookies.form_secret(),
        now: shared.client.core().0.now(),
        told: cookies.told.clone(),
        typed: Vec::new(),
    }
}

/// The request as the API's authentication reads it: with the token of the session as a bearer token, in place of what a proxy has
/// put there for itself, such as its own password.
pub(super) fn with_token(request: &mut Parts, token: &str) {
    request.headers.remove(AUTHORIZATION);
    if let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {token}")) {
        request.headers.insert(AUTHORIZATION, bearer);
    }
}

/// True if a browser says that another site has caused the request.
fn is_from_elsewhere(request: &Parts) -> bool {
    let from = request.headers.get("sec-fetch-site").and_then(|from| from.to_str().ok());
    matches!(from, Some("cross-site" | "same-site"))
}

async fn pass(
    State(gate): State<Gate>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    asked: OriginalUri,
    request: Request,
    next: Next,
) -> Response {
    let shared = &gate.door.shared;
    let is_get = request.method() == Method::GET;
    let (mut parts, body) = request.into_parts();
    let cookies = Cookies::of(&parts, &*shared.client.core().0.entropy, gate.behind_tls);
    let mut site = site(&parts, &asked, &cookies, shared);
    if is_get && cookies.token.is_none() && is_from_elsewhere(&parts) {
        return once_more();
    }
    if let Some(token) = &cookies.token {
        with_token(&mut parts, token);
    }
    let request = Request::from_parts(parts, body);
    let response = match gate.enter(&cookies, &mut site, params, request).await {
        Ok(request) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    let mut response = match response.extensions().get::<Refusal>() {
        Some(refusal) if refusal.is_nobody && is_get => sign_in_first(&site, &asked),
        Some(refusal) => told(&site, refusal, &response),
        None => response,
    };
    add(response.headers_mut(), cookies.keep_visit());
    if response.status().is_success() {
        add(response.headers_mut(), cookies.was_told());
    }
    response
}

/// The page to sign in, from which a person gets to the page that was asked for.
fn sign_in_first(site: &Site, asked: &OriginalUri) -> Response {
    let asked = asked.0.path_and_query().map_or("", |asked| asked.as_str());
    let next = asked.strip_prefix(&*site.base).unwrap_or_default();
    see(&site.at(&format!("/sign-in?next={}", escaped(next))))
}

impl Gate {
    /// Lets a caller in, with the site and the client that the page needs.
    async fn enter(
        &self,
        cookies: &Cookies,
        site: &mut Site,
        params: Result<RawPathParams, RawPathParamsRejection>,
        request: Request,
    ) -> Result<Request, Failed> {
        let (mut parts, body) = request.into_parts();
        let client = &self.door.shared.client;
        let caller = match self.door.admit(&parts).await {
            Ok(caller) => caller,
            Err(refused) => {
                // The page that says so has the person's own navigation, and nothing of the tenant.
                site.caller = self.door.shared.caller(&parts).await.unwrap_or_default();
                return Err(refused);
            }
        };
        site.caller = Some(caller.clone());
        let params = params.map_err(Failed::malformed)?;
        let named = params.iter().find_map(|(name, value)| (name == "tenant").then_some(value));
        match (self.door.reach, named) {
            (Reach::Tenant, Some(named)) => {
                let tenant = tenant(&caller, Some(named))?;
                parts.extensions.insert(client.of_tenant(tenant.clone()));
                site.tenant = Some(tenant);
            }
            _ => {
                parts.extensions.insert(client.clone());
            }
        }
        let (mut request, mut typed) = (Request::from_parts(parts, body), Vec::new());
        if request.method() == Method::POST {
            let (own, mut fields) = own_form(cookies, request).await?;
            fields.retain(|(name, text)| TYPED.contains(&name.as_str()) && !text.is_empty());
            typed.extend(fields.into_iter().map(|(_, text)| text));
            request = own;
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(self.door.shared.clone());
        request.extensions_mut().insert(site.clone());
        request.extensions_mut().insert(cookies.clone());
        site.typed = typed;
        Ok(request)
    }
}

/// The fields of a form, by their names.
type Fields = Vec<(String, String)>;

/// Refuses a form that is not one of this session. Returns the request, and the fields of the form.
pub(super) async fn own_form(cookies: &Cookies, request: Request) -> Result<(Request, Fields), Failed> {
    let (parts, body) = request.into_parts();
    let whole = |body| Request::from_parts(parts.clone(), body);
    let bytes = Bytes::from_request(whole(body), &()).await.map_err(|cut| match cut.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Failed::of(Problem::TooLarge, "A form has 1 MiB at most."),
        _ => Failed::malformed(cut),
    })?;
    let form = Form::<Fields>::from_request(whole(bytes.clone().into()), &()).await;
    let fields = form.map_or_else(|_| Vec::new(), |form| form.0);
    let secret = fields.iter().find_map(|(name, value)| (name == layout::SECRET).then_some(value.as_str()));
    if is_from_elsewhere(&parts) || !cookies.is_own_form(secret.unwrap_or_default()) {
        let words = "This form is not one of your present session: it was made before you signed in, or by another site. \
                     Load the page again. Nothing was done.";
        return Err(Failed::of(Problem::Forbidden, words));
    }
    Ok((Request::from_parts(parts, bytes.into()), fields))
}

/// A page that loads itself once more. Somebody has followed a link of another site, such as a chat, and browsers leave the cookie
/// of the session out of such a request; the second one comes from the page itself.
fn once_more() -> Response {
    let page = html! {
        (maud::DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; meta http-equiv="refresh" content="0"; title { "counterfoil" } }
            body { p { "One moment: the page is loading." } }
        }
    };
    axum::response::Html(page.into_string()).into_response()
}

/// A redirection to a page, which the browser gets by `GET`.
pub(super) fn see(address: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(LOCATION, address);
    }
    response
}

/// The page of a refusal. A refused form is not filled in any more when the person goes back, so the page says what was typed.
pub(super) fn told(site: &Site, refusal: &Refusal, response: &Response) -> Response {
    let body = html! {
        h1 { (refusal.title) }
        p.lead { (refusal.detail) }
        @if !site.typed.is_empty() {
            h2 { "What you have typed" }
            @for text in &site.typed { pre tabindex="0" { (text) } }
        }
        p { a href=(site.here()) { "Back to the page" } " · " a href=(site.at("/")) { "To the overview" } }
    };
    (response.status(), layout::page(site, refusal.title, &body)).into_response()
}

/// The page for a request that no page answers.
pub(super) fn lost(asked: &OriginalUri, request: &Request, status: StatusCode, words: &str) -> Response {
    let site = Site { base: Site::base(&asked.0, request.uri()), ..Site::default() };
    let body = html! { h1 { (words) } p { a href=(site.at("/")) { "To the overview" } } };
    (status, layout::page(&site, words, &body)).into_response()
}

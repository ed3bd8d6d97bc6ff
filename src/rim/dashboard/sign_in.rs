//! Signing in with a token of the API, and signing out.

use std::sync::Arc;

use axum::Form;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest as _, OriginalUri, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use maud::html;
use serde::Deserialize;

use super::gate::{own_form, see, site, told, with_token};
use super::layout::{page, secret};
use super::session::{Cookies, add};
use super::site::Site;
use crate::rim::api::{Failed, Refusal, Role, Shared};

/// What the pages share for which nobody has to be signed in.
#[derive(Clone)]
pub(super) struct Public {
    pub(super) shared: Arc<Shared>,
    /// True if a proxy in front of the server speaks TLS.
    pub(super) behind_tls: bool,
}

/// The page that a person wanted to see.
#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    next: String,
}

/// What a person types in.
#[derive(Deserialize)]
struct Typed {
    token: String,
    #[serde(default)]
    next: String,
}

fn sheet(site: &Site, next: &str, trouble: Option<&str>) -> Response {
    let body = html! {
        h1 { "Sign in" }
        form.card method="post" action=(site.at("/sign-in")) {
            (secret(site))
            input type="hidden" name="next" value=(next);
            @if let Some(trouble) = trouble { p.trouble #trouble role="alert" { (trouble) } }
            label for="token" { "Token" }
            input #token type="password" name="token" required autocomplete="current-password" autofocus
                aria-describedby="hint";
            p.hint #hint {
                "A token of the API, made by " code { "counterfoil token create" }
                ". It stays in this browser for twelve hours, or until you sign out."
            }
            button.main { "Sign in" }
        }
    };
    let status = if trouble.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    (status, page(site, "Sign in", &body)).into_response()
}

pub(super) async fn form(
    State(Public { shared, behind_tls }): State<Public>,
    asked: OriginalUri,
    wanted: Result<Query<Wanted>, QueryRejection>,
    request: Request,
) -> Response {
    let parts = request.into_parts().0;
    let cookies = Cookies::of(&parts, &*shared.client.core().0.entropy, behind_tls);
    let site = site(&parts, &asked, &cookies, &shared);
    let mut response = sheet(&site, &wanted.map(|wanted| wanted.0.next).unwrap_or_default(), None);
    add(response.headers_mut(), cookies.keep_visit());
    response
}

pub(super) async fn sign_in(
    State(Public { shared, behind_tls }): State<Public>,
    asked: OriginalUri,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let entropy = shared.client.core().0.entropy.clone();
    let cookies = Cookies::of(&parts, &*entropy, behind_tls);
    let site = site(&parts, &asked, &cookies, &shared);
    let request = Request::from_parts(parts, body);
    match enter(&shared, &cookies, request).await {
        Ok(Ok(Typed { token, next })) => {
            let mut response = see(&site.at(inner(&next)));
            add(response.headers_mut(), cookies.begin(token.trim(), &*entropy));
            response
        }
        Ok(Err((next, trouble))) => sheet(&site, &next, Some(trouble)),
        Err(failed) => refused(&site, failed),
    }
}

/// What was typed in, if it is a token of somebody who may look; otherwise the page that was wanted, and the trouble.
async fn enter(
    shared: &Shared,
    cookies: &Cookies,
    request: Request,
) -> Result<Result<Typed, (String, &'static str)>, Failed> {
    let (request, _) = own_form(cookies, request).await?;
    let (mut parts, body) = request.into_parts();
    let form = Form::<Typed>::from_request(Request::from_parts(parts.clone(), body), &()).await;
    let Form(typed) = form.map_err(Failed::malformed)?;
    with_token(&mut parts, typed.token.trim());
    Ok(match shared.caller(&parts).await? {
        None => Err((typed.next, "This token is not valid, or was revoked.")),
        Some(caller) if !caller.role.allows(Role::Read) => Err((
            typed.next,
            "This token makes guarded calls and does nothing else; it cannot look at pages.",
        )),
        Some(_) => Ok(typed),
    })
}

fn refused(site: &Site, failed: Failed) -> Response {
    let response = failed.into_response();
    match response.extensions().get::<Refusal>() {
        Some(refusal) => told(site, refusal, &response),
        None => response,
    }
}

/// A path of the dashboard; anything else is the overview.
fn inner(next: &str) -> &str {
    let is_path =
        next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t']);
    if is_path { next } else { "/" }
}

pub(super) async fn sign_out(
    State(Public { shared, behind_tls }): State<Public>,
    asked: OriginalUri,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let cookies = Cookies::of(&parts, &*shared.client.core().0.entropy, behind_tls);
    let site = site(&parts, &asked, &cookies, &shared);
    if let Err(failed) = own_form(&cookies, Request::from_parts(parts, body)).await {
        return refused(&site, failed);
    }
    let mut response = see(&site.at("/sign-in"));
    add(response.headers_mut(), cookies.end());
    response
}

#[cfg(test)]
mod tests {
    use super::inner;

    #[test]
    fn signing_in_leads_to_no_other_site() {
        assert_eq!(inner("/t/acme/runs?state=blocked"), "/t/acme/runs?state=blocked");
        for elsewhere in ["", "//evil.com", "https://evil.com", "/\\evil.com", "/\t/evil.com", "evil"] {
            assert_eq!(inner(elsewhere), "/", "{elsewhere}");
        }
    }
}

//! Signing in, and what a browser is told about each page.

use axum::Router;
use counterfoil::api::{Api, Role};

use super::Served;
use super::browser::Browser;
use crate::place::Place;
use crate::world::serve;

#[tokio::test]
async fn who_has_not_signed_in_is_led_to_the_form_and_from_there_to_the_page() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut browser = Browser::at(&served.url);
    let shown = browser.get("/ui/t/acme/runs?state=blocked").await;
    assert_eq!(
        (shown.status, shown.location()),
        (303, "/ui/sign-in?next=%2Ft%2Facme%2Fruns%3Fstate%3Dblocked")
    );
    let form = browser.get(shown.location()).await;
    assert_eq!(form.field("next"), "/t/acme/runs?state=blocked");
    let (secret, token) = (form.field("form"), served.token("ann", Role::Read, "acme").await);
    let fields = [("form", &*secret), ("token", &token), ("next", "/t/acme/runs?state=blocked")];
    let entered = browser.post("/ui/sign-in", &fields).await;
    assert_eq!((entered.status, entered.location()), (303, "/ui/t/acme/runs?state=blocked"));
    assert_eq!(browser.get(entered.location()).await.status, 200);
    let home = browser.get("/ui").await;
    assert_eq!((home.status, home.location()), (303, "/ui/t/acme"));
    // Out again: the next page asks for a token.
    let secret = browser.get("/ui/t/acme").await.field("form");
    assert_eq!(browser.post("/ui/sign-out", &[("form", &secret)]).await.location(), "/ui/sign-in");
    assert_eq!(browser.get("/ui/t/acme").await.status, 303);
    served.end().await;
}

#[tokio::test]
async fn a_token_that_is_wrong_revoked_or_for_agents_enters_nothing() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut browser = Browser::at(&served.url);
    for token in ["", "cft_", "cft_0123456789abcdef_00", "<script>alert(1)</script>"] {
        let shown = browser.sign_in(token).await;
        assert_eq!(shown.status, 401, "{token}");
        assert!(shown.has("not valid") && !shown.has("<script>alert"));
    }
    let agent = served.token("bot", Role::Call, "acme").await;
    assert_eq!(browser.sign_in(&agent).await.status, 401);
    assert!(!browser.cookies.contains_key("counterfoil_token"));
    let token = served.token("ann", Role::Read, "acme").await;
    browser.sign_in(&token).await;
    assert_eq!(browser.get("/ui/t/acme").await.status, 200);
    Api::new(&served.client).tokens().revoke(&token[4..20], "bob").await.unwrap();
    assert_eq!(browser.get("/ui/t/acme").await.status, 303, "a session ends with its token");
    served.end().await;
}

#[tokio::test]
async fn a_header_that_a_proxy_puts_on_requests_keeps_nobody_from_signing_in() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let token = served.token("ann", Role::Read, "acme").await;
    let other = served.token("ben", Role::Read, "other").await;
    for header in ["Basic cHJveHk6c2VjcmV0", "Bearer cft_none", &format!("Bearer {other}")] {
        let mut browser = Browser::behind(&served.url, ("authorization", header));
        assert_eq!(browser.sign_in("cft_wrong\u{1}").await.status, 401, "{header}");
        assert_eq!(browser.sign_in(&token).await.status, 303, "{header}");
        let shown = browser.get("/ui/t/acme").await;
        assert!(shown.status == 200 && shown.has("ann (read)"), "{header}: {}", shown.text);
    }
    served.end().await;
}

// A proxy names its own upstream as the host, as nginx does by default.
#[tokio::test]
async fn behind_tls_cookies_are_for_tls_although_the_proxy_names_a_loopback_host() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let token = served.token("ann", Role::Read, "acme").await;
    let pages = Api::new(&served.client).dashboard().behind_tls(true).router();
    let url = serve(Router::new().nest_service("/ui", pages)).await;
    let mut browser = Browser::at(&url);
    browser.cookies.insert("counterfoil_token".to_owned(), token.clone());
    assert_eq!(
        browser.get("/ui/t/acme").await.status,
        303,
        "a cookie that was set in the clear begins no session"
    );
    let entered = browser.sign_in(&token).await;
    let set: Vec<_> = entered.headers.get_all("set-cookie").iter().map(|set| set.to_str().unwrap()).collect();
    assert!(!set.is_empty(), "{}", entered.text);
    assert!(set.iter().all(|set| set.starts_with("__Host-") && set.contains("; Secure")), "{set:?}");
    assert!(browser.cookies.contains_key("__Host-counterfoil_token"));
    assert_eq!(browser.get("/ui/t/acme").await.status, 200);
    served.end().await;
}

#[tokio::test]
async fn a_session_is_no_token_for_the_api_and_another_site_cannot_send_a_form() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let run = served.waiting("w").await;
    let mut browser = served.browser(Role::Operate, "acme").await;
    assert_eq!(browser.get("/runs").await.status, 401, "the API reads no cookies");
    let page = format!("/ui/t/acme/runs/{run}");
    let shown = browser.get(&page).await;
    let (secret, key) = (shown.field("form"), shown.field("key"));
    let old = Browser::at(&served.url).get("/ui/sign-in").await.field("form");
    let forged = "0".repeat(64);
    for wrong in ["", &forged, &old, &secret[1..]] {
        let fields = [("form", wrong), ("command", "pause"), ("key", &*key), ("reason", "r")];
        let refused = browser.post(&page, &fields).await;
        assert_eq!(refused.status, 403, "{wrong}");
        assert!(refused.has("Nothing was done"));
    }
    let without = [("command", "pause"), ("key", &*key), ("reason", "r")];
    assert_eq!(browser.post(&page, &without).await.status, 403);
    let bare = reqwest::Client::new().post(format!("{}{page}", served.url)).send().await.unwrap();
    assert_eq!(bare.status(), 401, "nobody");
    let state = served.client.tenant("acme").unwrap().handle::<u32>(run).status().await.unwrap().state;
    assert_eq!(state.name(), "waiting");
    served.end().await;
}

#[tokio::test]
async fn a_link_in_a_chat_leads_to_the_page_although_the_browser_leaves_the_session_out() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let mut from_chat = Browser::at(&served.url);
    let page = from_chat.get_with("/ui/t/acme/questions", ("sec-fetch-site", "cross-site")).await;
    assert!(page.status == 200 && page.has("http-equiv=\"refresh\""), "{}", page.text);
    assert!(from_chat.cookies.is_empty(), "forms in other tabs stay usable");
    assert_eq!(browser.get_with("/ui/t/acme/questions", ("sec-fetch-site", "same-origin")).await.status, 200);
    served.end().await;
}

#[tokio::test]
async fn every_answer_tells_the_browser_to_load_nothing_from_elsewhere() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let mut seen = Vec::new();
    for (path, status) in [
        ("/ui/sign-in", 200),
        ("/ui/t/acme", 200),
        ("/ui/", 303),
        ("/ui/nowhere", 404),
        ("/ui/t/other", 403),
        ("/ui/queues", 403),
        ("/ui/t/acme/runs/nonsense", 422),
    ] {
        let shown = browser.get(path).await;
        assert_eq!(shown.status, status, "{path}");
        let header = |name: &str| shown.headers[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(
            (header("x-frame-options"), header("x-content-type-options")),
            ("DENY".into(), "nosniff".into())
        );
        assert_eq!(header("cache-control"), "no-store");
        assert!(!shown.has("style=\"") && !shown.has("onclick") && !shown.has("<style"), "{path}");
        seen.extend(shown.text.split('"').filter(|part| part.starts_with("/ui/assets/")).map(str::to_owned));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for asset in seen {
        let shown = browser.get(&asset).await;
        assert_eq!(
            (shown.status, shown.headers["cache-control"].to_str().unwrap().contains("immutable")),
            (200, true)
        );
    }
    assert_eq!(browser.get("/ui/assets/app.0000000000000000.js").await.status, 404);
    served.end().await;
}

//! The dashboard in a real browser: what the buttons do, what a page shows without being loaded again, and what somebody meets who
//! has no mouse, a small screen, or a reader instead of a screen.

mod answers;
mod commands;
mod desk;
mod driver;
mod files;
mod lists;
mod shop;

use serde_json::{Value, json};

use self::desk::Desk;
use self::driver::Browser;

const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';

/// Signs Ann in, who wants to see this page of the dashboard at `url`.
async fn sign_in(browser: &Browser, (url, token): (&str, &str), path: &str) {
    browser.open(&format!("{url}{path}")).await;
    browser.type_into("//input[@name='token']", token).await;
    browser.click("//button[.='Sign in']").await;
    browser.shows("Sign out").await;
    assert_eq!(browser.url().await, format!("{url}{path}"));
}

/// The pages of the desk, by names for pictures.
fn pages(desk: &Desk) -> Vec<(&'static str, String)> {
    vec![
        ("overview", "/t/acme".into()),
        ("runs", "/t/acme/runs".into()),
        ("run", format!("/t/acme/runs/{}", desk.lost)),
        ("questions", "/t/acme/questions".into()),
        ("question", format!("/t/acme/questions/{}", desk.doubt)),
        ("approvals", "/t/acme/approvals".into()),
        ("approval", format!("/t/acme/approvals/{}", desk.review_path())),
        ("set-aside", "/t/acme/set-aside".into()),
        ("evidence", "/t/acme/evidence?key=pay_back%3Aorder%2Flost".into()),
        ("schedules", "/t/acme/schedules".into()),
        ("tenants", "/tenants".into()),
        ("queues", "/queues".into()),
        ("workers", "/workers".into()),
        ("not-found", "/t/acme/runs/run-1".into()),
    ]
}

/// What axe-core finds on the page: rules of WCAG 2.2, levels A and AA.
async fn barriers(browser: &Browser) -> Vec<Value> {
    let path = std::env::var("AXE_CORE").expect("AXE_CORE names axe.min.js: AXE_CORE=$(.ci/axe)");
    browser.run(&std::fs::read_to_string(path).unwrap()).await;
    let tags = json!(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]);
    let script = format!(
        "axe.run(document, {{ runOnly: {tags} }}).then((found) => arguments[0](found.violations.map((violation) => \
         [violation.id, violation.nodes.map((node) => node.html + ' ' + node.failureSummary)])))"
    );
    browser.run_to_end(&script).await.as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_answers_approves_pauses_and_resumes_and_sees_what_changes_without_loading_the_page_again() {
    let (desk, browser) = (Desk::open().await, Browser::start("light").await);
    let question = format!("/t/acme/questions/{}", desk.doubt);
    sign_in(&browser, (&desk.url, &desk.token), &question).await;
    // The answer.
    browser.type_into("//textarea[@id='happened-with']", "{\"id\": \"b-7\"}").await;
    browser.type_into("//input[@id='happened-reason']", "it is in the bank's list").await;
    browser.click("//button[.='It happened']").await;
    browser.shows("The answer is recorded.").await;
    browser.shows("it is in the bank's list").await;
    // The approval.
    browser.open(&format!("{}/t/acme/approvals/{}", desk.url, desk.review_path())).await;
    browser.type_into("//input[@id='approve']", "the sum is right").await;
    browser.click("//button[.='Approve']").await;
    browser.shows("The decision is recorded.").await;
    browser.shows("✓ approved").await;
    // A pause, which the page shows by itself, and the end of the pause.
    browser.open(&format!("{}/t/acme/runs/{}", desk.url, desk.lost)).await;
    browser.shows("waiting for a signal").await;
    browser.type_into("//input[@id='pause-reason']", "the bank is down").await;
    browser.click("//button[.='Pause']").await;
    browser.shows("The run is told to pause.").await;
    browser.shows("✕ blocked").await;
    browser.open(&format!("{}/t/acme/runs/{}", desk.url, desk.lost)).await;
    browser.type_into("//input[@id='resume-reason']", "it is up").await;
    browser.click("//button[.='Resume']").await;
    browser.shows("The run goes on.").await;
    desk.reaches(desk.lost, "waiting").await;
    // A live update: nobody loads this page again.
    browser.shows("waiting for a signal").await;
    browser.click("//summary[.='The timeline as a table']").await;
    browser.run("window.isStillHere = true").await;
    desk.thank(desk.lost).await;
    browser.shows("✓ succeeded").await;
    browser.shows("signal thanks").await;
    assert_eq!(browser.run("return window.isStillHere").await, json!(true));
    // Out.
    browser.click("//button[.='Sign out']").await;
    browser.shows("A token of the API").await;
    browser.open(&format!("{}/t/acme", desk.url)).await;
    browser.shows("A token of the API").await;
    desk.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_has_a_barrier_in_light_in_dark_or_on_a_small_screen() {
    let desk = Desk::open().await;
    let mut found = Vec::new();
    for scheme in ["light", "dark"] {
        let browser = Browser::start(scheme).await;
        browser.open(&format!("{}/sign-in", desk.url)).await;
        found.extend(
            barriers(&browser).await.into_iter().map(|barrier| format!("sign-in, {scheme}: {barrier:#}")),
        );
        browser.picture(&format!("sign-in-{scheme}")).await;
        sign_in(&browser, (&desk.url, &desk.token), "/t/acme").await;
        for (name, path) in pages(&desk) {
            browser.resize(1280, 900).await;
            browser.open(&format!("{}{path}", desk.url)).await;
            browser.picture(&format!("{name}-{scheme}")).await;
            found.extend(
                barriers(&browser).await.into_iter().map(|barrier| format!("{name}, {scheme}: {barrier:#}")),
            );
            if scheme == "light" {
                browser.resize(320, 700).await;
                let overflow =
                    browser.run("return document.documentElement.scrollWidth - window.innerWidth").await;
                if overflow.as_i64().unwrap() > 0 {
                    found.push(format!("{name} is {overflow} pixels too wide for a small screen"));
                }
                browser.picture(&format!("{name}-narrow")).await;
                found.extend(
                    barriers(&browser)
                        .await
                        .into_iter()
                        .map(|barrier| format!("{name}, narrow: {barrier:#}")),
                );
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    desk.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keyboard_alone_leads_past_the_navigation_and_to_a_run() {
    let (desk, browser) = (Desk::open().await, Browser::start("light").await);
    sign_in(&browser, (&desk.url, &desk.token), "/t/acme/runs").await;
    browser.open(&format!("{}/t/acme/runs", desk.url)).await;
    browser.press(TAB).await;
    assert_eq!(browser.run("return document.activeElement.innerText").await, json!("Skip to the content"));
    browser.press(ENTER).await;
    assert_eq!(browser.run("return document.activeElement.id").await, json!("main"));
    for _ in 0..40 {
        browser.press(TAB).await;
        let focus = browser.run("return document.activeElement.innerText").await;
        if focus == json!(desk.lost.to_string()) {
            let outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle").await;
            assert_eq!(outline, json!("solid"), "the focus is visible");
            browser.press(ENTER).await;
            browser.shows("The timeline as a table").await;
            desk.close().await;
            return;
        }
    }
    panic!("the run is not reached by the keyboard");
}

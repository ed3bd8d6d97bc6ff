//! What leads a person to a page: signing in, filters, the next page of a list, and the fields for a key and a tenant.

use std::collections::BTreeSet;

use serde_json::json;

use super::driver::Browser;
use super::shop::Shop;

/// The number of runs, of which one has failed. A page shows fifty.
const RUNS: usize = 53;

/// Waits until the page lists this number of runs, and returns their names.
async fn listed(browser: &Browser, runs: usize) -> BTreeSet<String> {
    let links = "[...document.querySelectorAll('#live a.run')]";
    assert!(browser.comes_true(&format!("{links}.length === {runs}")).await, "{}", browser.text().await);
    let names = browser.run(&format!("return {links}.map((link) => link.innerText)")).await;
    serde_json::from_value(names).unwrap()
}

/// A token that nobody has is refused. Then the person gets to the page that was wanted.
async fn signs_in(shop: &Shop, browser: &Browser) {
    let wanted = format!("{}/t/acme/runs?workflow=pay", shop.url);
    browser.open(&wanted).await;
    browser.type_into("//input[@name='token']", "cft_nobody").await;
    browser.click("//button[.='Sign in']").await;
    browser.shows("This token is not valid").await;
    browser.type_into("//input[@name='token']", &shop.token).await;
    browser.click("//button[.='Sign in']").await;
    browser.shows("Sign out").await;
    assert_eq!(browser.url().await, wanted);
}

async fn walks_through_all_runs(shop: &Shop, browser: &Browser) {
    let mut seen = listed(browser, 50).await;
    browser.click("//a[.='Next page']").await;
    seen.extend(listed(browser, RUNS - 50).await);
    let all = shop.acme().runs(None).await.unwrap();
    assert_eq!(seen, all.iter().map(|run| run.id.to_string()).collect::<BTreeSet<_>>());
}

/// The fields keep what was typed, also a time that cannot be read.
async fn filters_the_runs(browser: &Browser, failed: &str) {
    browser.click("//select[@id='state']/option[.='failed']").await;
    browser.type_into("//input[@id='key']", "order/bro").await;
    browser.click("//button[.='Filter']").await;
    assert!(browser.comes_true("location.search.includes('state=failed')").await);
    assert_eq!(listed(browser, 1).await, BTreeSet::from([failed.to_owned()]));
    browser.type_into("//input[@id='since']", "yesterday").await;
    browser.click("//button[.='Filter']").await;
    browser.shows("yesterday").await;
    for (field, typed) in [("state", "failed"), ("key", "order/bro"), ("since", "yesterday")] {
        let kept = browser.run(&format!("return document.getElementById('{field}').value")).await;
        assert_eq!(kept, json!(typed), "{field}");
    }
    browser.click("//a[.='All runs']").await;
    listed(browser, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_filters_turns_pages_and_finds_calls_and_tenants() {
    let (shop, browser) = (Shop::open().await, Browser::start("light").await);
    let failed = shop.start("pay", "order/broke").await;
    shop.reaches(failed, "failed").await;
    for number in 1..RUNS {
        shop.start("pay", &format!("order/{number}")).await;
    }
    signs_in(&shop, &browser).await;
    walks_through_all_runs(&shop, &browser).await;
    filters_the_runs(&browser, &failed.to_string()).await;
    // A call, by its key.
    browser.open(&format!("{}/t/acme/evidence", shop.url)).await;
    browser.type_into("//input[@id='key']", "pay:order/broke").await;
    browser.click("//button[.='Show']").await;
    browser.shows("pay:order/broke").await;
    browser.shows("no money").await;
    // A tenant, by its name.
    browser.open(&format!("{}/tenants", shop.url)).await;
    browser.type_into("//input[@id='name']", "acme").await;
    browser.click("//button[.='Show']").await;
    browser.shows("What is stuck").await;
    assert_eq!(browser.url().await, format!("{}/t/acme", shop.url));
    // The ledger's own questions, and those that were answered.
    browser.open(&format!("{}/tenants", shop.url)).await;
    browser.click("//a[.='The ledger itself']").await;
    browser.shows("No question is open.").await;
    browser.click("//nav//a[.='Questions']").await;
    browser.click("//a[.='Answered questions']").await;
    browser.shows("restored").await;
    shop.close().await;
}

//! What the pages show: to whom, of which tenant, and whatever others have written.

use std::time::Duration;

use counterfoil::api::Role;
use counterfoil::ledger::ReviewPolicy;
use counterfoil::{ApprovalSubject, QuestionId};
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::Served;
use super::browser::{Browser, escaped};
use crate::on_both_stores;
use crate::place::Place;

/// The pages of a tenant, and of the ledger.
const OF_TENANT: [&str; 7] =
    ["", "/runs", "/questions", "/set-aside", "/approvals", "/evidence", "/schedules"];
const OF_LEDGER: [&str; 3] = ["/tenants", "/queues", "/workers"];

on_both_stores! {
    async fn the_pages_show_what_is_stuck_and_a_run_as_a_timeline(place) {
        let served = Served::on(&place).await;
        let (run, question) = served.asked("o-17").await;
        let waiting = served.waiting("w/1").await;
        let review = served.review("order/9", json!({ "cents": 1200 })).await;
        let mut browser = served.browser(Role::Read, "acme").await;
        let overview = browser.get("/ui/t/acme").await;
        for text in ["1 question waits", "1 approval", &question.to_string(), "ambiguous"] {
            assert!(overview.has(text), "{text}: {}", overview.text);
        }
        let runs = browser.get("/ui/t/acme/runs?state=waiting&workflow=wait&key=&since=").await;
        assert!(runs.has(&waiting.to_string()) && !runs.has(&format!("/runs/{run}\"")), "{}", runs.text);
        for (case, is_there) in [("w%2F1", true), ("w%2F2", false)] {
            let labelled = browser.get(&format!("/ui/t/acme/runs?label=case%3D{case}")).await;
            assert_eq!(labelled.has(&waiting.to_string()), is_there, "{}", labelled.text);
        }
        let shown = browser.get(&format!("/ui/t/acme/runs/{run}")).await;
        for text in ["<svg", "class=\"mark attempt\"", "class=\"mark question\"", "step draft", "pay:o-17", "/evidence?key=pay%3Ao-17",
            "attempt 1 by worker", "&quot;o-17&quot;"] {
            assert!(shown.has(text), "{text}: {}", shown.text);
        }
        assert!(!shown.has("<h2>Commands"), "a reader commands nothing");
        let asked = browser.get(&format!("/ui/t/acme/questions/{question}")).await;
        for text in ["It happened", "The call fails, whatever became of it.", "pay:o-17"] {
            assert!(asked.has(text), "{text}: {}", asked.text);
        }
        let evidence = browser.get("/ui/t/acme/evidence?key=open%3Ao-17").await;
        assert!(evidence.has("committed") && evidence.has("the provider&#39;s answer") || evidence.has("the provider's answer"), "{}", evidence.text);
        let approval = browser.get(&format!("/ui/t/acme/approvals/{}", escaped(&review))).await;
        assert!(approval.has("&quot;cents&quot;: 1200") && approval.has("ann, bob"), "{}", approval.text);
        served.end().await;
    }

    async fn a_page_of_another_tenant_is_refused_and_its_things_are_not_there(place) {
        let served = Served::on(&place).await;
        let (run, question) = served.asked("secret-17").await;
        let review = served.review("secret/9", json!({ "cents": 1200 })).await;
        let things = [
            format!("/runs/{run}"),
            format!("/questions/{question}"),
            format!("/approvals/{}", escaped(&review)),
            "/evidence?key=pay%3Asecret-17".to_owned(),
        ];
        let mut other = served.browser(Role::Admin, "other").await;
        for path in OF_TENANT.iter().map(ToString::to_string).chain(things.clone()) {
            let shown = other.get(&format!("/ui/t/acme{path}")).await;
            assert_eq!((shown.status, shown.has("secret")), (403, path.contains("secret") && shown.has("secret")), "{path}");
        }
        for path in &OF_TENANT {
            let shown = other.get(&format!("/ui/t/other{path}")).await;
            assert_eq!((shown.status, shown.has("secret")), (200, false), "{path}");
        }
        for path in &things {
            assert_eq!(other.get(&format!("/ui/t/other{path}")).await.status, 404, "{path}");
        }
        let mut all = served.browser(Role::Read, "*").await;
        for path in &things {
            assert_eq!(all.get(&format!("/ui/t/acme{path}")).await.status, 200, "{path}");
        }
        served.end().await;
    }
}

#[tokio::test]
async fn each_page_is_open_to_whoever_may_read_and_pages_of_the_ledger_to_callers_for_all_tenants() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    for role in [Role::Read, Role::Decide, Role::Operate, Role::Admin] {
        for tenant in ["acme", "*"] {
            let mut browser = served.browser(role, tenant).await;
            for path in OF_TENANT {
                assert_eq!(browser.get(&format!("/ui/t/acme{path}")).await.status, 200, "{path} as {role}");
            }
            for path in OF_LEDGER {
                let expected = if tenant == "*" { 200 } else { 403 };
                assert_eq!(browser.get(&format!("/ui{path}")).await.status, expected, "{path} as {role}");
            }
        }
    }
    let mut all = served.browser(Role::Read, "*").await;
    assert_eq!(all.get("/ui/tenants?name=acme").await.location(), "/ui/t/acme");
    assert_eq!(all.get("/ui/tenants?name=+acme+").await.location(), "/ui/t/acme");
    assert_eq!(all.get("/ui").await.location(), "/ui/tenants");
    let twice = all.get("/ui/tenants?name=acme&name=other").await;
    assert!(twice.status == 400 && twice.has("<nav"), "{}", twice.text);
    served.end().await;
}

#[tokio::test]
async fn hostile_text_in_every_field_stays_text() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}&amp;";
    let (run, question) = served.asked(hostile).await;
    let review = served.review(hostile, json!({ hostile: hostile })).await;
    let waiting = served.waiting(&format!("w{hostile}")).await;
    let mut browser = served.browser(Role::Admin, "*").await;
    let key = escaped(&format!("pay:{hostile}"));
    for path in [
        String::new(),
        "/runs".to_owned(),
        format!("/runs?key={}&workflow={}", escaped(hostile), escaped(hostile)),
        format!("/runs/{run}"),
        format!("/runs/{waiting}"),
        "/questions".to_owned(),
        format!("/questions/{question}"),
        "/approvals".to_owned(),
        format!("/approvals/{}", escaped(&review)),
        format!("/evidence?key={key}"),
        format!("/evidence?key={}", escaped(hostile)),
        format!("/questions/{}", escaped(hostile)),
        format!("/{}", escaped(hostile)),
    ] {
        let shown = browser.get(&format!("/ui/t/acme{path}")).await;
        assert!(shown.headers["content-type"].to_str().unwrap().starts_with("text/html"), "{path}");
        for never in ["<script>alert", "<img", "\u{202e}", "\"'>"] {
            assert!(!shown.has(never), "{path} has {never:?}: {}", shown.text);
        }
    }
    let form = browser.get(&format!("/ui/sign-in?next={}", escaped(hostile))).await;
    assert!(!form.has("<script>alert"));
    served.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_a_page_in_words() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    for (path, status) in [
        ("/runs?after=run-zz", 422),
        ("/runs?after=run-7fffffffffffffff~1", 200), // a place in the caller's own list, where nothing is
        ("/runs?state=asleep", 400),
        ("/runs?since=%3Cscript%3E", 400),
        ("/runs/nonsense", 422),
        ("/runs/run-1", 404),
        ("/runs/%ff", 400),
        ("/runs/run-1?after=-1", 400),
        ("/questions?after=question-%00", 422),
        ("/questions?answered=perhaps", 400),
        ("/set-aside?after=question-%00", 422),
        ("/questions/question-1", 404),
        ("/approvals?after=%00", 422),
        ("/approvals/%00", 422),
        ("/evidence?key=%00", 422),
        ("/evidence?key=none", 404),
    ] {
        let shown = browser.get(&format!("/ui/t/acme{path}")).await;
        assert_eq!(shown.status, status, "{path}: {}", shown.text);
        assert!(shown.has("<h1>") && shown.has("<nav"), "{path}");
    }
    let refused = browser.get("/ui/t/acme/runs?key=order&since=yesterday").await;
    for kept in ["value=\"order\"", "value=\"yesterday\"", "is no time in UTC"] {
        assert!(refused.has(kept), "{kept}: {}", refused.text);
    }
    let removed = reqwest::Client::new().delete(format!("{}/ui/t/acme", served.url)).send().await.unwrap();
    assert_eq!(removed.status(), 405);
    served.end().await;
}

/// The links of a list to things of this kind, on each of its pages.
async fn walked(browser: &mut Browser, list: &str, things: &str) -> Vec<Vec<String>> {
    between(browser, list, &format!("<a href=\"/ui/t/acme/{things}/"), '"').await
}

/// What stands between this marker and this character, on each page of a list.
async fn between(browser: &mut Browser, list: &str, marker: &str, end: char) -> Vec<Vec<String>> {
    let (mut pages, mut path) = (Vec::new(), format!("/ui/t/acme/{list}"));
    loop {
        let shown = browser.get(&path).await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text);
        let links = shown.text.split(marker).skip(1).map(|rest| rest.split(end).next().unwrap().to_owned());
        pages.push(links.collect());
        let Some((_, next)) = shown.text.split_once("rel=\"next\" href=\"") else { return pages };
        next.split('"').next().unwrap().clone_into(&mut path);
    }
}

/// Writes rows into the database file, beside the engine.
async fn write(place: &Place, rows: String) {
    let Place::Sqlite(dir) = place else { unreachable!() };
    let file = SqliteConnectOptions::new().filename(dir.path().join("agents.db"));
    sqlx::raw_sql(sqlx::AssertSqlSafe(rows)).execute(&mut file.connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_checkpoints_of_a_long_turn_are_shown_page_by_page() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let run = served.waiting("w").await;
    let many = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
         INSERT INTO step (tenant, run, turn, kind, name, id, at) SELECT 'acme', {}, 0, 1, \
         printf('s%04d', i), '1', 1700000000000000 + i FROM n",
        run.0
    );
    write(&place, many).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let pages = between(&mut browser, &format!("runs/{run}"), "<td class=\"text\">step ", '<').await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 500, 500]);
    assert_eq!(pages.concat(), (1..=2000).map(|i| format!("s{i:04}")).collect::<Vec<_>>());
    served.end().await;
}

#[tokio::test]
async fn the_oldest_questions_about_a_run_are_shown_and_no_calls_that_wait_for_their_providers() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let run = served.waiting("w").await;
    // Calls that wait (kind 27) before signals that could not be read (kind 26).
    let many = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
         INSERT INTO escalation (tenant, id, run, kind, question, opened_at) SELECT 'acme', i, {}, \
         CASE WHEN i <= 200 THEN 27 ELSE 26 END, 'what now?', 1700000000000000 FROM n",
        run.0
    );
    write(&place, many).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let shown = walked(&mut browser, &format!("runs/{run}"), "questions").await;
    let expected: Vec<_> = (201..=250).map(|id| QuestionId(id).to_string()).collect();
    assert_eq!(shown, [expected]);
    served.end().await;
}

#[tokio::test]
async fn what_is_set_aside_is_shown_page_by_page_among_other_questions() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    // Messages that could not be processed (kind 22) before, between and behind effects that are not shown (kind 24).
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2250) \
                INSERT INTO escalation (tenant, id, kind, question, opened_at) SELECT 'acme', i, \
                CASE WHEN i <= 100 OR i > 2200 THEN 22 ELSE 24 END, 'what now?', 1700000000000000 FROM n";
    write(&place, many.to_owned()).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let pages = walked(&mut browser, "set-aside", "questions").await;
    // Two full pages, one of a thousand other questions, and the rest.
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50, 0, 50]);
    let all: Vec<_> = pages.concat();
    let expected: Vec<_> = (1..=100).chain(2201..=2250).map(|id| QuestionId(id).to_string()).collect();
    assert_eq!(all, expected);
    served.end().await;
}

#[tokio::test]
async fn approvals_whose_time_is_over_do_not_hide_those_behind_them() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let reviews = served.engine.tenant("acme").unwrap().approvals();
    let refund = ApprovalSubject::of("refund", &json!({ "cents": 1200 }));
    let people = ReviewPolicy::by(["ann"]);
    let mut open = Vec::new();
    for number in 0..110 {
        let over = people.clone().expires_in(Duration::ZERO);
        reviews.ask(format!("{number:03}-a"), refund.clone(), over).await.unwrap();
        let asked = reviews.ask(format!("{number:03}-b"), refund.clone(), people.clone()).await.unwrap();
        open.push(asked.id.replace('/', "%2F"));
    }
    let mut browser = served.browser(Role::Read, "acme").await;
    let pages = walked(&mut browser, "approvals", "approvals").await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50, 10]);
    assert_eq!(pages.concat(), open);
    served.end().await;
}

//! What the buttons do, and for whom.

use counterfoil::ApprovalSubject;
use counterfoil::api::Role;
use counterfoil::ledger::ReviewPolicy;
use serde_json::json;

use super::Served;
use super::browser::escaped;
use crate::on_both_stores;
use crate::place::Place;
use crate::world::Log;

on_both_stores! {
    async fn a_question_is_answered_by_its_button_once_and_by_the_person_who_has_signed_in(place) {
        let served = Served::on(&place).await;
        let (run, question) = served.asked("o-17").await;
        let mut browser = served.browser(Role::Decide, "acme").await;
        let page = format!("/ui/t/acme/questions/{question}");
        let secret = browser.get(&page).await.field("form");
        let with = |value| [("form", secret.as_str()), ("answer", "happened"), ("with", value), ("reason", "it is in the bank's list")];
        for (wrong, words) in [("", "lacks its value"), ("{", "no JSON"), ("paid", "no JSON")] {
            let refused = browser.post(&page, &with(wrong)).await;
            assert!(refused.status == 400 && refused.has(words), "{wrong}: {} {}", refused.status, refused.text);
            assert!(refused.has("What you have typed") && refused.has("it is in the bank"), "{}", refused.text);
        }
        let done = browser.post(&page, &with("{\"id\": \"p-1\"}")).await;
        assert_eq!((done.status, done.location()), (303, page.as_str()), "{}", done.text);
        let shown = browser.get(&page).await;
        for text in ["The answer is recorded.", "ann", "it is in the bank", "It happened"] {
            assert!(shown.has(text), "{text}: {}", shown.text);
        }
        assert!(!browser.get(&page).await.has("The answer is recorded."), "said once");
        assert_eq!(browser.post(&page, &with("{\"id\": \"p-1\"}")).await.status, 303, "the same answer again");
        assert_eq!(browser.post(&page, &with("{\"id\": \"p-2\"}")).await.status, 409);
        let result = served.engine.tenant("acme").unwrap().handle::<serde_json::Value>(run).result().await.unwrap();
        assert_eq!(result, json!({ "id": "p-1" }));
        let page = browser.get(&format!("/ui/t/acme/runs/{run}")).await;
        assert!(page.has("succeeded") && page.has("answered by ann"), "{}", page.text);
        served.end().await;
    }

    async fn a_run_is_paused_and_resumed_by_its_buttons_and_a_form_that_is_sent_twice_is_one_command(place) {
        let served = Served::on(&place).await;
        let run = served.waiting("w").await;
        let mut browser = served.browser(Role::Operate, "acme").await;
        let page = format!("/ui/t/acme/runs/{run}");
        let shown = browser.get(&page).await;
        let (secret, key) = (shown.field("form"), shown.field("key"));
        let pause = [("form", &*secret), ("command", "pause"), ("key", &*key), ("reason", "the bank is down")];
        assert_eq!(browser.post(&page, &pause).await.status, 303);
        assert!(browser.get(&page).await.has("The run is told to pause."));
        assert_eq!(browser.post(&page, &pause).await.status, 303);
        assert!(browser.get(&page).await.has("This was done before"));
        let shown = loop {
            let shown = browser.get(&page).await;
            if shown.has("blocked") { break shown }
        };
        assert!(shown.has("the bank is down") && shown.has("value=\"resume\"") && !shown.has("value=\"pause\""), "{}", shown.text);
        let key = shown.field("key");
        let resume = [("form", &*secret), ("command", "resume"), ("key", &*key), ("reason", "it is up")];
        assert_eq!(browser.post(&page, &resume).await.status, 303);
        let nonsense = [("form", &*secret), ("command", "explode"), ("key", "k"), ("reason", "r")];
        assert_eq!(browser.post(&page, &nonsense).await.status, 400);
        let unnamed = [("form", &*secret), ("command", "pause"), ("key", "k2"), ("reason", "")];
        assert_eq!(browser.post(&page, &unnamed).await.status, 422);
        let handle = served.client.tenant("acme").unwrap().handle::<u32>(run);
        handle.signal("go", 7).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 7);
        let shown = browser.get(&page).await;
        assert!(shown.has("value=\"fork\"") && !shown.has("value=\"cancel\""), "{}", shown.text);
        served.end().await;
    }

    async fn an_approval_is_decided_by_its_button_about_the_version_that_was_seen(place) {
        let served = Served::on(&place).await;
        let review = served.review("order/9", json!({ "cents": 1200 })).await;
        let mut browser = served.browser(Role::Decide, "acme").await;
        let page = format!("/ui/t/acme/approvals/{}", escaped(&review));
        let shown = browser.get(&page).await;
        let secret = shown.field("form");
        assert_eq!(shown.field("version"), "1");
        let with = |version, approve| [("form", secret.as_str()), ("version", version), ("approve", approve), ("reason", "looks right")];
        assert_eq!(browser.post(&page, &with("2", "true")).await.status, 409);
        assert_eq!(browser.post(&page, &with("1", "true")).await.status, 303);
        let shown = browser.get(&page).await;
        assert!(shown.has("The decision is recorded.") && shown.has("approved"), "{}", shown.text);
        assert!(shown.has("looks right"), "the comment stands beside the vote: {}", shown.text);
        assert!(!shown.has("<button class=\"main\">Reject"), "there is nothing left to decide");
        let approval = served.engine.tenant("acme").unwrap().review(&review).await.unwrap().unwrap();
        let vote = &approval.review.votes[0];
        assert_eq!((&*vote.by, &*vote.reason), ("ann", "looks right"));
        served.end().await;
    }
}

#[tokio::test]
async fn an_approval_shows_what_has_changed_since_the_version_before() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let id = served.review("order/9", json!({ "to": "ann", "cents": 1200 })).await;
    let mut browser = served.browser(Role::Read, "acme").await;
    let page = format!("/ui/t/acme/approvals/{}", escaped(&id));
    assert!(!browser.get(&page).await.has("Changed since"));
    let reviews = served.engine.tenant("acme").unwrap().approvals();
    let package =
        ApprovalSubject::of("refund", &json!({ "to": "ann", "cents": 9900, "note": "<b>soon</b>" }));
    reviews.ask("order/9", package, ReviewPolicy::by(["ann", "bob"])).version(2).await.unwrap();
    let shown = browser.get(&page).await;
    for text in ["Changed since", "/cents", "<del>1200</del>", "<ins>9900</ins>", "<ins>&quot;&lt;b&gt;soon"]
    {
        assert!(shown.has(text), "{text}: {}", shown.text);
    }
    assert!(!shown.has("<del>&quot;ann"), "what is the same is no change");
    served.end().await;
}

#[tokio::test]
async fn a_button_needs_its_role_also_when_the_form_is_sent_without_it() {
    let place = Place::sqlite();
    let served = Served::on(&place).await;
    let (_, question) = served.asked("o-17").await;
    let (run, review) = (served.waiting("w").await, served.review("order/9", json!(1)).await);
    let forms = [
        (
            format!("/ui/t/acme/runs/{run}"),
            Role::Operate,
            vec![("command", "pause"), ("key", "k"), ("reason", "r")],
        ),
        (
            format!("/ui/t/acme/questions/{question}"),
            Role::Decide,
            vec![("answer", "abandon"), ("reason", "r")],
        ),
        (
            format!("/ui/t/acme/approvals/{}", escaped(&review)),
            Role::Decide,
            vec![("version", "1"), ("approve", "false"), ("reason", "r")],
        ),
    ];
    for role in [Role::Read, Role::Decide, Role::Operate] {
        for (page, needed, fields) in &forms {
            if role.allows(*needed) {
                continue;
            }
            let mut browser = served.browser(role, "acme").await;
            let shown = browser.get(page).await;
            let secret = shown.field("form");
            assert!(!shown.has("<button class=\"main\">"), "{page} as {role}");
            let mut fields = fields.clone();
            fields.push(("form", &secret));
            let refused = browser.post(page, &fields).await;
            assert!(
                refused.status == 403 && refused.has(needed.name()),
                "{page} as {role}: {}",
                refused.status
            );
        }
    }
    let acme = served.engine.tenant("acme").unwrap();
    assert_eq!(acme.questions().await.unwrap().len(), 1);
    assert!(acme.review(&review).await.unwrap().unwrap().review.votes.is_empty());
    served.end().await;
}

// An encrypted ledger encrypts what a person gives as a reason; the log would hold it in the clear.
#[tokio::test]
async fn the_log_says_who_has_sent_which_form_and_not_why() {
    let (place, log) = (Place::sqlite(), Log::default());
    let _here = log.listen();
    let served = Served::on(&place).await;
    let (_, question) = served.asked("o-17").await;
    let (run, review) = (served.waiting("w").await, served.review("order/9", json!(1)).await);
    let mut browser = served.browser(Role::Operate, "acme").await;
    for (page, fields) in [
        (format!("/ui/t/acme/runs/{run}"), [("command", "pause"), ("key", "k")]),
        (format!("/ui/t/acme/questions/{question}"), [("answer", "abandon"), ("with", "")]),
        (format!("/ui/t/acme/approvals/{}", escaped(&review)), [("version", "1"), ("approve", "true")]),
    ] {
        let secret = browser.get(&page).await.field("form");
        let [first, second] = fields;
        let form = [("form", secret.as_str()), first, second, ("reason", "a canary sings")];
        let done = browser.post(&page, &form).await;
        assert_eq!(done.status, 303, "{page}: {}", done.text);
    }
    let lines = log.lines();
    let taken = lines.iter().filter(|line| line.message == "write of the dashboard taken");
    let taken: Vec<_> =
        taken.map(|line| (line.field("by").unwrap(), line.field("action").unwrap())).collect();
    assert_eq!(taken, [("ann", "pause"), ("ann", "answer"), ("ann", "decide")]);
    let shown: Vec<_> =
        lines.iter().map(ToString::to_string).filter(|line| line.contains("canary")).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    served.end().await;
}

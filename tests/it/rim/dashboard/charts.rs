//! The charts of a tenant: what they count, for whom, and that the numbers are those of the ledger.

use counterfoil::api::Role;
use counterfoil::ledger::ErrorKind;
use counterfoil::store::Resolution;
use counterfoil::{Failure, RunId};
use serde_json::{Value, json};

use super::browser::Browser;
use super::{Served, book};
use crate::on_both_stores;
use crate::world::Reply;

impl Served {
    /// A run of acme that books seats for a case, and its result.
    async fn booked(&self, key: &str, case: &str, seats: u32) -> (RunId, Result<Value, Failure>) {
        let acme = self.engine.tenant("acme").unwrap();
        let run = acme.run(book, (case.to_owned(), seats)).key(key).start().await.unwrap();
        let result = run.result().await.map_err(|error| Failure::new(error.to_string()));
        (run.id(), result)
    }
}

/// The figures of today, as the API answers them.
async fn today(served: &Served) -> Value {
    let token = served.token("ben", Role::Read, "acme").await;
    let request = reqwest::Client::new().get(format!("{}/figures", served.url)).bearer_auth(token);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["items"].as_array().unwrap().len(), 30, "{answer}");
    answer["items"][0].clone()
}

/// The sentence below the title of a chart.
async fn chart(browser: &mut Browser, tenant: &str, title: &str) -> String {
    let shown = browser.get(&format!("/ui/t/{tenant}")).await;
    let title = format!("<strong>{title}</strong> ");
    let (_, words) = shown.text.split_once(&title).unwrap_or_else(|| panic!("no {title} in {}", shown.text));
    words.split_once('<').unwrap().0.to_owned()
}

on_both_stores! {
    async fn an_effect_that_a_lookup_finds_is_a_duplicate_avoided_and_so_is_an_answer_to_another_run(place) {
        let served = Served::on(&place).await;
        let mut browser = served.browser(Role::Read, "*").await;
        served.booked("r1", "c0", 1).await.1.unwrap();
        assert_eq!(chart(&mut browser, "acme", "Duplicates avoided").await, "0 in 30 days");
        served.world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
        served.booked("r2", "c1", 1).await.1.unwrap();
        assert_eq!(chart(&mut browser, "acme", "Duplicates avoided").await, "1 in 30 days");
        served.booked("r3", "c1", 1).await.1.unwrap();
        assert_eq!(chart(&mut browser, "acme", "Duplicates avoided").await, "2 in 30 days");
        assert_eq!(served.world.requests(), 2, "each effect was made once");
        let figures = today(&served).await;
        assert_eq!((&figures["duplicates_avoided"], &figures["conflicts"]), (&json!(2), &json!(0)), "{figures}");
        assert_eq!(figures["is_complete"], json!(true));
        assert_eq!(chart(&mut browser, "other", "Duplicates avoided").await, "0 in 30 days");
        served.end().await;
    }

    async fn a_request_with_another_content_is_a_conflict_once_for_its_operation(place) {
        let served = Served::on(&place).await;
        let mut browser = served.browser(Role::Read, "*").await;
        served.booked("r1", "c1", 1).await.1.unwrap();
        assert_eq!(chart(&mut browser, "acme", "Conflicts").await, "0 in 30 days");
        for (key, seats) in [("r2", 2), ("r3", 3)] {
            served.booked(key, "c1", seats).await.1.unwrap_err();
            assert_eq!(chart(&mut browser, "acme", "Conflicts").await, "1 in 30 days");
        }
        assert_eq!(today(&served).await["conflicts"], json!(1));
        assert_eq!(chart(&mut browser, "other", "Conflicts").await, "0 in 30 days");
        served.end().await;
    }

    async fn a_question_counts_on_each_day_on_which_it_was_open(place) {
        let served = Served::on(&place).await;
        let mut browser = served.browser(Role::Read, "*").await;
        assert_eq!(chart(&mut browser, "acme", "Open questions").await, "0 today");
        let (_, question) = served.asked("o-17").await;
        assert_eq!(chart(&mut browser, "acme", "Open questions").await, "1 today");
        let acme = served.client.tenant("acme").unwrap();
        // The run then ends well: one that fails asks about what it leaves.
        acme.answer(question, Resolution::Happened(json!({ "id": 17 })), "ann").await.unwrap();
        assert_eq!(chart(&mut browser, "acme", "Open questions").await, "1 today");
        assert_eq!(today(&served).await["open_questions"], json!(1));
        assert_eq!(chart(&mut browser, "other", "Open questions").await, "0 today");
        let shown = browser.get("/ui/t/acme").await;
        for words in ["Open questions by day", "1 today. The highest number of a day is 1.", "The numbers of each day", "<title>20"] {
            assert!(shown.has(words), "{words}: {}", shown.text);
        }
        served.end().await;
    }
}

//! The answers to questions, each given by its button, with its effect in the ledger and at the provider.

use std::collections::BTreeSet;

use counterfoil::store::QuestionKind;
use counterfoil::{QuestionId, Tenant};
use serde_json::json;

use super::driver::Browser;
use super::shop::Shop;
use super::sign_in;

/// The words of the button of each answer.
const BUTTONS: [(&str, &str); 13] = [
    ("happened", "It happened"),
    ("did_not_happen", "It did not happen: send it again"),
    ("look_now", "Look now"),
    ("send_without_looking", "Send without looking"),
    ("abandon", "Abandon"),
    ("resume", "Resume"),
    ("keep", "Keep"),
    ("undo", "Undo"),
    ("undone", "It was undone by hand"),
    ("again", "Once more"),
    ("deliver", "Deliver a value"),
    ("skip", "Skip"),
    ("lift", "Lift"),
];

/// Ann, who answers the questions of a shop.
struct Person<'a> {
    shop: &'a Shop,
    browser: &'a Browser,
    acme: Tenant,
    /// The names of the answers whose buttons were pressed.
    pressed: BTreeSet<&'static str>,
}

impl Person<'_> {
    /// Opens a question, and fills in the fields of an answer.
    async fn fills_in(&self, tenant: &Tenant, asked: QuestionId, name: &str, value: Option<&str>) {
        self.browser.open(&format!("{}/t/{tenant}/questions/{asked}", self.shop.url)).await;
        if let Some(value) = value {
            self.browser.type_into(&format!("//textarea[@id='{name}-with']"), value).await;
        }
        self.browser.type_into(&format!("//input[@id='{name}-reason']"), &format!("why {name}")).await;
    }

    async fn presses(&mut self, name: &'static str) {
        let (_, words) = BUTTONS.iter().find(|(of, _)| *of == name).unwrap();
        self.browser.click(&format!("//button[.='{words}']")).await;
        self.pressed.insert(name);
    }

    /// Gives an answer. The ledger has it, with the person and the reason.
    async fn gives(&mut self, tenant: &Tenant, asked: QuestionId, name: &'static str, value: Option<&str>) {
        self.fills_in(tenant, asked, name, value).await;
        self.presses(name).await;
        self.browser.shows("The answer is recorded.").await;
        let given = self.shop.answered(tenant, asked).await.answer.unwrap();
        let reason = format!("why {name}");
        assert_eq!(
            (&*given.by, given.resolution.name(), given.because.as_deref()),
            ("ann", name, Some(&*reason))
        );
    }

    /// Gives an answer to a question of the shop's own tenant.
    async fn says(&mut self, asked: QuestionId, name: &'static str, value: Option<&str>) {
        let acme = self.acme.clone();
        self.gives(&acme, asked, name, value).await;
    }

    async fn trusts_the_ledger_again(&mut self) {
        let ledger = Tenant::ledger();
        let asked = self.shop.asks(&ledger, QuestionKind::Restored, None).await;
        assert!(self.shop.is_restored().await);
        self.gives(&ledger, asked, "lift", None).await;
        assert!(!self.shop.is_restored().await);
    }

    async fn says_what_became_of_calls(&mut self) {
        for (name, value, state, requests) in [
            ("happened", Some("{\"id\": \"p-1\"}"), "succeeded", 1),
            ("did_not_happen", None, "succeeded", 2),
            ("send_without_looking", None, "succeeded", 2),
            ("abandon", None, "failed", 1),
        ] {
            let order = format!("order/doubt-{name}");
            let run = self.shop.start("pay", &order).await;
            let asked = self.shop.asks(&self.acme, QuestionKind::Ambiguous, Some(run)).await;
            self.says(asked, name, value).await;
            self.shop.reaches(run, state).await;
            assert_eq!(self.shop.provider.requests(&format!("pay:{order}")), requests, "{name}");
        }
    }

    /// The page is served by a client, which has no tools: the engine makes the lookup.
    async fn has_the_provider_asked(&mut self) {
        let run = self.shop.start("ship", "order/doubt-ship").await;
        let asked = self.shop.asks(&self.acme, QuestionKind::Ambiguous, Some(run)).await;
        self.fills_in(&self.acme, asked, "look_now", None).await;
        self.shop.provider.shows(); // now, because the engine looks by itself, too, some seconds after it has asked
        self.presses("look_now").await;
        self.browser.shows("The provider is asked now.").await;
        let view = self.shop.answered(&self.acme, asked).await;
        assert_eq!(view.answer.unwrap().resolution.name(), "withdrawn", "the lookup has answered it");
        self.shop.reaches(run, "succeeded").await;
        assert_eq!(self.shop.provider.requests("ship:order/doubt-ship"), 1, "it is not sent again");
    }

    async fn ends_pauses(&mut self) {
        for (name, state) in [("resume", "waiting"), ("abandon", "failed")] {
            let run = self.shop.start("wait", &format!("order/pause-{name}")).await;
            self.shop.reaches(run, "waiting").await;
            self.shop.handle(run).pause("bob", "the bank is down").await.unwrap();
            let asked = self.shop.asks(&self.acme, QuestionKind::Paused, Some(run)).await;
            self.says(asked, name, None).await;
            self.shop.reaches(run, state).await;
        }
    }

    /// Of one order the booking is undone by the engine, and the payment by hand. Of the other one both are kept.
    async fn undoes_one_order_and_keeps_another(&mut self) {
        for (booking, payment, value) in [("undo", "undone", Some("\"by phone\"")), ("keep", "keep", None)] {
            let order = format!("order/{booking}");
            let run = self.shop.start("hold", &order).await;
            self.shop.sends(&format!("pay:{order}")).await; // a run that a client has started waits for an engine first
            self.shop.reaches(run, "waiting").await;
            self.shop.handle(run).cancel("bob", "the customer has left").await.unwrap();
            let asked = self.shop.asks(&self.acme, QuestionKind::Compensation, Some(run)).await;
            self.says(asked, booking, None).await;
            self.shop.reaches(run, "failed").await;
            let asked = self.shop.asks(&self.acme, QuestionKind::Orphaned, Some(run)).await;
            self.says(asked, payment, value).await;
            let acme = self.shop.acme();
            for key in [format!("book:{order}"), format!("pay:{order}")] {
                let outcome = acme.evidence(&key).await.unwrap().unwrap().outcome;
                assert_eq!(outcome.undone.is_some(), booking == "undo", "{key}: {outcome:?}");
            }
        }
        assert_eq!(self.shop.provider.undone(), ["order/undo"]);
    }

    /// A value that is no JSON is refused, and the page keeps what was typed. The run gets a value that it can read.
    async fn hands_a_run_its_signal(&mut self) {
        let run = self.shop.start("wait", "order/unread").await;
        self.shop.reaches(run, "waiting").await;
        self.shop.handle(run).signal("number", json!("seven")).await.unwrap();
        let first = self.shop.asks(&self.acme, QuestionKind::Unread, Some(run)).await;
        self.says(first, "again", None).await;
        let asked = self.shop.asks(&self.acme, QuestionKind::Unread, Some(run)).await;
        assert_ne!(asked, first, "the run is given the same signal, and cannot read it");
        self.fills_in(&self.acme, asked, "deliver", Some("VII")).await;
        self.presses("deliver").await;
        for text in ["The value is no JSON", "VII", "why deliver"] {
            self.browser.shows(text).await;
        }
        let view = self.shop.acme().question(asked).await.unwrap().unwrap();
        assert_eq!((view.answer, view.waiting), (None, None));
        self.says(asked, "deliver", Some("7")).await;
        self.shop.reaches(run, "succeeded").await;
        assert_eq!(self.shop.handle(run).result().await.unwrap(), json!(7));
    }

    async fn leaves_an_event_out(&mut self) {
        self.shop.start("tell", "order/told").await;
        let first = self.shop.asks(&self.acme, QuestionKind::Unpublished, None).await;
        self.says(first, "again", None).await;
        let asked = self.shop.asks(&self.acme, QuestionKind::Unpublished, None).await;
        assert_ne!(asked, first, "it is refused again");
        self.says(asked, "skip", None).await;
        self.shop.hears_of("order/told").await; // of the event behind it
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_is_given_by_its_button_and_has_its_effect() {
    let (shop, browser) = (Shop::restored().await, Browser::start("light").await);
    sign_in(&browser, (&shop.url, &shop.token), "/tenants").await;
    let acme = Tenant::new("acme").unwrap();
    let mut ann = Person { shop: &shop, browser: &browser, acme, pressed: BTreeSet::new() };
    ann.trusts_the_ledger_again().await;
    ann.says_what_became_of_calls().await;
    ann.has_the_provider_asked().await;
    ann.ends_pauses().await;
    ann.undoes_one_order_and_keeps_another().await;
    ann.hands_a_run_its_signal().await;
    ann.leaves_an_event_out().await;
    let pressed = ann.pressed;
    let all = QuestionKind::ALL.iter().flat_map(|kind| kind.answers()).map(|answer| answer.name);
    assert_eq!(pressed, all.collect::<BTreeSet<_>>(), "each answer that a question takes has a button");
    shop.close().await;
}

//! The commands to a run and the decision about an approval, each given by its button, with its effect in the ledger.

use counterfoil::flow::{FailureCode, RunState};
use counterfoil::ledger::{ReviewOutcome, ReviewPolicy};
use counterfoil::store::QuestionKind;
use counterfoil::{ApprovalSubject, RunId, Tenant};
use serde_json::json;

use super::driver::Browser;
use super::shop::Shop;
use super::sign_in;

const REASON: &str = "the bank is down";

/// Ann, who gives commands to the runs of a shop.
struct Person<'a> {
    shop: &'a Shop,
    browser: &'a Browser,
}

impl Person<'_> {
    async fn opens(&self, run: RunId) {
        self.browser.open(&format!("{}/t/acme/runs/{run}", self.shop.url)).await;
    }

    /// Gives a command on the page of a run, which then says what was done.
    async fn commands(&self, name: &str, button: &str, told: &str) {
        self.browser.type_into(&format!("//input[@id='{name}-reason']"), REASON).await;
        self.browser.click(&format!("//button[.='{button}']")).await;
        self.browser.shows(told).await;
    }

    /// A run that waits for its customer's number.
    async fn waiting(&self, order: &str) -> RunId {
        let run = self.shop.start("wait", order).await;
        self.shop.reaches(run, "waiting").await;
        run
    }

    async fn pauses_and_resumes(&self) {
        let (acme, run) = (Tenant::new("acme").unwrap(), self.waiting("order/paused").await);
        self.opens(run).await;
        self.commands("pause", "Pause", "The run is told to pause.").await;
        let asked = self.shop.asks(&acme, QuestionKind::Paused, Some(run)).await;
        let question = self.shop.acme().question(asked).await.unwrap().unwrap().question;
        assert!(question.contains("ann paused it: the bank is down"), "{question}");
        self.browser.shows("A paused run goes on.").await;
        self.commands("resume", "Resume", "The run goes on.").await;
        self.shop.reaches(run, "waiting").await;
        assert_eq!(self.shop.answered(&acme, asked).await.answer.unwrap().by, "ann");
    }

    /// A run is paused by somebody else: a page that was loaded before offers the command that ends the pause.
    async fn is_offered_what_the_run_takes_now(&self) {
        let run = self.waiting("order/paused-by-bob").await;
        self.opens(run).await;
        self.browser.shows("The run stops where it is durable").await;
        self.browser.run("window.isStillHere = true").await;
        self.shop.handle(run).pause("bob", REASON).await.unwrap();
        self.browser.shows("A paused run goes on.").await;
        assert_eq!(self.browser.run("return window.isStillHere").await, json!(true));
        self.commands("resume", "Resume", "The run goes on.").await;
        self.shop.reaches(run, "waiting").await;
    }

    async fn cancels(&self) {
        let run = self.waiting("order/cancelled").await;
        self.opens(run).await;
        self.commands("cancel", "Cancel", "The run is cancelled.").await;
        self.shop.reaches(run, "failed").await;
        let failure = match self.shop.handle(run).status().await.unwrap().state {
            RunState::Failed { failure } => failure,
            other => panic!("{other:?}"),
        };
        assert_eq!(failure.code, FailureCode::Cancelled);
        assert_eq!(failure.message, "ann cancelled the run: the bank is down");
    }

    async fn retries(&self) {
        let run = self.shop.start("pay", "order/broke").await;
        self.shop.reaches(run, "failed").await;
        self.opens(run).await;
        self.commands("retry", "Retry", "The run begins once more.").await;
        self.shop.reaches(run, "succeeded").await;
        assert_eq!(self.shop.provider.requests("pay:order/broke"), 2);
    }

    /// The new run has its own page and its own end.
    async fn forks(&self) {
        let run = self.waiting("order/forked").await;
        self.opens(run).await;
        self.commands("fork", "Fork", "This is the new run.").await;
        let page = self.browser.url().await;
        let fork: RunId = page.rsplit('/').next().unwrap().parse().unwrap();
        assert_ne!(fork, run);
        self.shop.reaches(fork, "waiting").await;
        self.shop.handle(fork).signal("number", json!(7)).await.unwrap();
        self.shop.reaches(fork, "succeeded").await;
        assert_eq!(self.shop.handle(run).status().await.unwrap().state.name(), "waiting");
    }

    async fn rejects(&self) {
        let acme = self.shop.acme();
        let refund = ApprovalSubject::of("refund above 100", &json!({ "cents": 12_900 }));
        let asked = acme.approvals().ask("order/24", refund, ReviewPolicy::by(["ann", "bob"])).await.unwrap();
        self.browser.open(&format!("{}/t/acme/approvals", self.shop.url)).await;
        self.browser.click("//main//a[.='refund above 100']").await;
        self.browser.shows("Nobody has voted yet.").await;
        self.browser.type_into("//input[@id='reject']", "the sum is wrong").await;
        self.browser.click("//button[.='Reject']").await;
        self.browser.shows("The decision is recorded.").await;
        let outcome = acme.review(&asked.id).await.unwrap().unwrap().review.outcome;
        let (by, reason) = ("ann".to_owned(), "the sum is wrong".to_owned());
        assert_eq!(outcome, Some(ReviewOutcome::Rejected { by, reason }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_is_given_by_its_button_and_has_its_effect() {
    let (shop, browser) = (Shop::open().await, Browser::start("dark").await);
    sign_in(&browser, (&shop.url, &shop.token), "/t/acme").await;
    let ann = Person { shop: &shop, browser: &browser };
    ann.pauses_and_resumes().await;
    ann.is_offered_what_the_run_takes_now().await;
    ann.cancels().await;
    ann.retries().await;
    ann.forks().await;
    ann.rejects().await;
    shop.close().await;
}

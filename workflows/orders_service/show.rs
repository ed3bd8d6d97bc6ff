//! A storm of duplicates: each request is sent several times at once, and then it is counted what has happened.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Engine, client_key};
use futures_util::future::try_join_all;
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use sqlx::sqlite::SqliteConnection;

use super::books::Books;
use super::payments::payment;
use super::sender::{SECRET, signed};
use super::table::{Cell, Table, colours};
use super::{Failed, SHOP, Secrets, Service, Surroundings, open};

/// So many of each kind.
pub(crate) const NUMBERS: usize = 10;
/// Each is sent so often at once.
pub(crate) const COPIES: usize = 4;

/// What was sent through a door, and what came of it.
pub(crate) struct Shown {
    pub(crate) sent: &'static str,
    /// How often which status was answered.
    pub(crate) answers: BTreeMap<u16, usize>,
    /// What there is now, and how many of it.
    pub(crate) happened: Option<(&'static str, i64)>,
}

/// What the senders below sign with.
pub(crate) fn secrets() -> Secrets {
    Secrets::from([("BANK_WEBHOOK_SECRET".to_owned(), SECRET.to_owned())])
}

/// The whole of it, on a SQLite file.
pub(crate) async fn storm(file: &Path, around: &Surroundings) -> Result<Vec<Shown>, Failed> {
    let ledger = file.to_str().ok_or("the path is UTF-8")?;
    let mut service = open::<SqliteConnection>(Engine::sqlite(ledger), ledger, around, 0).await?;
    let shown = sent(&mut service).await;
    service.close().await;
    shown
}

/// Whoever sends.
struct Senders {
    http: Client,
    url: String,
    /// A new name each time: the ledger is new, and a fence or a broker may be an old one.
    run: String,
}

impl Senders {
    fn number(&self, n: usize) -> String {
        format!("{}-{n}", self.run)
    }

    fn user(&self, path: &str) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.url)).bearer_auth(format!("token-of-{SHOP}"))
    }

    fn order(&self, n: usize) -> RequestBuilder {
        let order = json!({ "number": self.number(n) });
        self.user("/orders").header("idempotency-key", self.number(n)).json(&order)
    }

    fn note(&self, n: usize) -> RequestBuilder {
        self.user("/ann/notes").json(&json!({ "text": "hello", "nonce": n, "enforce_nonce": true }))
    }

    fn event(&self, kind: &str, n: usize) -> RequestBuilder {
        let event = json!({ "type": kind, "order": self.number(n), "cents": 4200 }).to_string();
        let request = self.http.post(format!("{}/webhooks/bank", self.url));
        signed(request, &format!("{kind}-{}", self.number(n)).replace('.', "-"), &event)
    }
}

async fn sent(service: &mut Service<SqliteConnection>) -> Result<Vec<Shown>, Failed> {
    let http = Client::builder().no_proxy().build()?;
    let senders = Senders { http, url: format!("http://{}", service.address), run: client_key() };
    let orders = copies(|n| senders.order(n)).await?;
    let announced = copies(|n| senders.event("payment.announced", n)).await?;
    let settled = copies(|n| senders.event("payment.settled", n)).await?;
    let notes = copies(|n| senders.note(n)).await?;
    let shop = service.engine.tenant(SHOP)?;
    for n in 0..NUMBERS {
        let run = shop.run_of(payment::<SqliteConnection>, senders.number(n)).find().await?;
        run.ok_or("a payment has a run")?.result().await?;
    }
    let own = &mut service.own;
    let mut shown = vec![
        Shown {
            sent: "POST /orders",
            answers: orders,
            happened: Some(("orders", own.entered("order").await?)),
        },
        Shown { sent: "webhook payment.announced", answers: announced, happened: None },
        Shown {
            sent: "webhook payment.settled",
            answers: settled,
            happened: Some(("payments", own.entered("payment").await?)),
        },
        Shown {
            sent: "POST /ann/notes",
            answers: notes,
            happened: Some(("notes", own.entered("note").await?)),
        },
    ];
    if service.consuming.is_some() {
        while own.entered("invoice").await? < i64::try_from(NUMBERS)? {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
        let invoices = own.entered("invoice").await?;
        shown.push(Shown {
            sent: "payments over NATS",
            answers: BTreeMap::new(),
            happened: Some(("invoices", invoices)),
        });
    }
    Ok(shown)
}

/// Sends the copies of all requests at once.
async fn copies(request: impl Fn(usize) -> RequestBuilder) -> Result<BTreeMap<u16, usize>, Failed> {
    let sent = (0..NUMBERS * COPIES).map(|n| request(n % NUMBERS).send());
    let mut answers = BTreeMap::new();
    for answer in try_join_all(sent).await? {
        *answers.entry(answer.status().as_u16()).or_default() += 1;
    }
    Ok(answers)
}

pub(crate) fn table(shown: &[Shown]) -> String {
    let mut table = Table::new(["each was sent 4 times at once", "answers", "what there is"]);
    for Shown { sent, answers, happened } in shown {
        let answers = answers.iter().map(|(status, times)| format!("{times} x {status}"));
        table.row(vec![
            Cell::plain(*sent),
            Cell::plain(answers.collect::<Vec<_>>().join(", ")),
            Cell::plain(happened.map(|(what, number)| format!("{number} {what}")).unwrap_or_default()),
        ]);
    }
    table.render(colours())
}

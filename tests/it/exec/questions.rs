//! Questions, open and answered: however many there are, each of them can be listed, and they can be counted.

use std::sync::Arc;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind};
use counterfoil::store::conformance::sample::{Sample, answered};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::store::{Change, Model, Question, QuestionCount, Resolution, Store};
use counterfoil::{Executor, Outcome, QuestionId, Tenant, ToolRequest};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _};

use crate::world::{Keys, Reply, World, acme};

/// More than any store reads at once.
const MANY: usize = 2500;

/// Opens them, and one question of another tenant.
async fn ask(store: &dyn Store) -> (Tenant, Vec<Question>) {
    let sample = Sample::enrol(store, "ann").await;
    let mut all: Vec<_> = (0..MANY).map(|number| sample.escalation(&number.to_string())).collect();
    all.sort_by_key(|question| question.id);
    let mut changes: Vec<_> =
        all.chunks(500).map(|some| Change { escalations: some.to_vec(), ..sample.change() }).collect();
    changes.push(sample.change().escalation(sample.for_tenant("globex").escalation("theirs")));
    // An answered one is not listed.
    changes.push(sample.change().escalation(answered(&all.remove(MANY / 2), "bob")));
    for change in changes {
        assert!(store.commit(&[change]).await.unwrap()[0].is_admitted());
    }
    (sample.tenant.clone(), all)
}

async fn all_are_listed<S: Store + 'static>(store: S) {
    let (tenant, all) = ask(&store).await;
    let executor: Executor = ExecutorBuilder::store(Arc::new(store)).open().await.unwrap();
    assert_eq!(executor.questions(&tenant).await.unwrap(), all);
    assert_eq!(executor.questions(&tenant).await.unwrap(), all);
    assert_eq!(executor.questions(&tenant).limit(0).await.unwrap(), []);

    for limit in [999, 1000, 1001, 2499, 2500, 7000] {
        let (mut paged, mut after) = (Vec::new(), QuestionId(i64::MIN));
        loop {
            let page = executor.questions(&tenant).after(after).limit(limit).await.unwrap();
            let Some(last) = page.last() else { break };
            after = last.id;
            let left = all.len() - paged.len();
            assert_eq!(page.len(), left.min(limit as usize), "a page is full, or the last one");
            paged.extend(page);
        }
        assert_eq!(paged, all, "pages of {limit}");
    }
    let globex = Tenant::new("globex").unwrap();
    assert_eq!(executor.questions(&globex).await.unwrap().len(), 1);
}

/// Those that were answered, by people and by the engine itself.
async fn answered_ones_are_listed_and_counted<S: Store + 'static>(store: S) {
    let sample = Sample::enrol(&store, "ann").await;
    let mut all: Vec<_> = (0..1500).map(|number| sample.escalation(&number.to_string())).collect();
    all.sort_by_key(|question| question.id);
    let open = Change { escalations: all.clone(), ..sample.change() };
    for (question, by) in all.iter_mut().skip(10).zip(["bob", "counterfoil"].into_iter().cycle()) {
        *question = answered(question, by);
    }
    let (open_ones, answered_ones) = all.split_at(10);
    let close = Change { escalations: answered_ones.to_vec(), ..sample.change() };
    let theirs = sample.for_tenant("globex").escalation("theirs");
    let kind = theirs.kind;
    for change in [open, close, sample.change().escalation(theirs)] {
        assert!(store.commit(&[change]).await.unwrap()[0].is_admitted());
    }
    let tenant = &sample.tenant;
    let executor = ExecutorBuilder::store(Arc::new(store)).open().await.unwrap();
    assert_eq!(executor.questions(tenant).await.unwrap(), open_ones);
    let listed = executor.answered_questions(tenant).await.unwrap();
    assert_eq!(listed, answered_ones);
    let by_engine = listed.iter().filter(|question| question.answer.as_ref().unwrap().is_by_engine());
    assert_eq!(by_engine.count(), 745);
    let page = executor.answered_questions(tenant).after(all[14].id).limit(3).await.unwrap();
    assert_eq!(page, all[15..18]);
    let counted = executor.count_questions(tenant).await.unwrap();
    assert_eq!(counted, [QuestionCount { kind, open: 10, answered: 1490 }]);
    let globex = Tenant::new("globex").unwrap();
    assert_eq!(
        executor.count_questions(&globex).await.unwrap(),
        [QuestionCount { kind, open: 1, answered: 0 }]
    );
}

#[tokio::test]
async fn answered_questions_are_listed_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    answered_ones_are_listed_and_counted(Sqlite::open(folder.path().join("test.db")).await.unwrap()).await;
}

#[tokio::test]
async fn answered_questions_are_listed_on_postgres() {
    let schema = crate::store::postgres::Schema::new();
    answered_ones_are_listed_and_counted(schema.open().await).await;
}

#[tokio::test]
async fn answered_questions_are_listed_on_the_model() {
    answered_ones_are_listed_and_counted(Model::new()).await;
}

#[tokio::test]
async fn all_questions_are_listed_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    all_are_listed(Sqlite::open(folder.path().join("test.db")).await.unwrap()).await;
}

#[tokio::test]
async fn all_questions_are_listed_on_postgres() {
    let schema = crate::store::postgres::Schema::new();
    all_are_listed(schema.open().await).await;
}

#[tokio::test]
async fn all_questions_are_listed_on_the_model() {
    all_are_listed(Model::new()).await;
}

// One that cannot be read is named in the log and left out: it does not hide those behind it, not even where it fills a page.
#[tokio::test]
async fn a_damaged_question_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let store = Sqlite::open(&path).await.unwrap();
    let (tenant, mut all) = ask(&store).await;
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let damage = "UPDATE escalation SET kind = 99 WHERE id > ? AND id <= ?";
    let damage = sqlx::query(damage).bind(all[9].id.0).bind(all[1199].id.0);
    assert_eq!(damage.execute(&mut other).await.unwrap().rows_affected(), 1190);
    other.execute("PRAGMA wal_checkpoint(PASSIVE)").await.unwrap();
    all.drain(10..1200);
    let executor = ExecutorBuilder::store(Arc::new(store)).open().await.unwrap();
    assert_eq!(executor.questions(&tenant).await.unwrap(), all);
}

// An operator sees what the answer takes: by what to search the provider, what was asked for, and what each answer does.
#[tokio::test]
async fn a_question_shows_everything_that_its_answer_takes() {
    let world = World::new(Keys::Ignores);
    let contract = Contract::new(ContractClass::Blind);
    let tool = world.tool("pay_out", EffectClass::InternalMutation, contract);
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    let long = "x".repeat(5_000);
    let request = ToolRequest::new(acme(), "pay_out", json!({ "case": "c1", "note": long }));
    let outcome = executor.execute(request).await.unwrap();
    let Outcome::NeedsDecision { question } = outcome else { panic!("{outcome:?}") };

    let view = executor.question(&acme(), question).await.unwrap().unwrap();
    let call = view.call.as_ref().unwrap();
    assert_eq!((call.tool.as_str(), call.key.as_str(), call.state), ("pay_out", "pay_out:c1", "started"));
    assert_eq!(world.wire_keys(), [call.wire_key.as_str()]);
    assert_eq!(
        (call.attempts, call.request.as_ref().unwrap().as_str().unwrap().len()),
        (1, 4096 + "…".len())
    );
    let shown = serde_json::to_value(&view).unwrap();
    assert_eq!((&shown["id"], &shown["kind"]), (&json!(question.to_string()), &json!("ambiguous")));
    assert!(shown["opened_at"].as_str().unwrap().ends_with('Z'), "{shown}");
    let names: Vec<_> = view.answers.iter().map(|answer| answer.name).collect();
    assert_eq!(
        names,
        ["happened", "did_not_happen", "send_without_looking", "abandon"],
        "no lookup: no look"
    );
    assert_eq!(shown["answers"][0]["name"], "happened", "{shown}");
    let text = view.to_string();
    for part in ["pay_out:c1", &call.wire_key, "answer        `happened`", "attempts      1"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let answer = executor.answer(&acme(), question, Resolution::Happened(json!({ "id": "e-1" })), "ann");
    answer.because("seen in the portal").await.unwrap();
    let answered = executor.question(&acme(), question).await.unwrap().unwrap();
    let answer = answered.answer.as_ref().unwrap();
    assert_eq!((answer.by.as_str(), answer.because.as_deref()), ("ann", Some("seen in the portal")));
    assert_eq!(answered.call.as_ref().unwrap().state, "committed");
    assert!(answered.to_string().contains("answered      happened by ann"), "{answered}");
    // Another tenant's question is none.
    assert!(executor.question(&Tenant::default(), question).await.unwrap().is_none());
}

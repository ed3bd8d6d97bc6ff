//! Runs, records and schedules that wait for an instant.

use std::slice::from_ref;

use serde_json::json;

use super::admit;
use super::sample::{Sample, inline, payload};
use super::signal::sent;
use crate::clock::Timestamp;
use crate::id::RunId;
use crate::ledger::{Look, Record, State};
use crate::store::{
    CANCEL, Change, DEADLINE, Question, QuestionKind, Run, RunState, Schedule, Store, WaitsOn,
};

/// Waiting runs whose timer is due are listed, the earliest first, up to the limit; the instant itself is due.
pub async fn waiting_runs_whose_time_has_come(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let (late, early, middle) = (sample.timer(300), sample.timer(-5), other.timer(200));
    let mut for_ever = sample.run_without_key();
    for_ever.state = RunState::Waiting { until: None, on: WaitsOn::ANSWER };
    let active = sample.run_without_key();
    let runs = [&late, &early, &middle, &for_ever, &active];
    admit(store, &runs.map(|run| sample.change().run(run.clone()))).await;

    let due = async |until: i64, limit: u32| store.run_due(Timestamp(until), None, limit).await.unwrap();
    assert_eq!(due(-6, 10).await, []);
    assert_eq!(due(199, 10).await, from_ref(&early));
    assert_eq!(due(200, 10).await, [early.clone(), middle.clone()], "of all tenants");
    assert_eq!(due(i64::MAX, 10).await, [early.clone(), middle.clone(), late.clone()]);
    assert_eq!(due(i64::MAX, 2).await, [early.clone(), middle.clone()]);

    admit(store, &[sample.change().run(sample.run_on(&early, RunState::Active))]).await;
    assert_eq!(due(i64::MAX, 10).await, [middle, late], "a run that goes on waits no more");
}

/// Runs that wait only for an answer and have no open question are listed in the order of their ids.
pub async fn waiting_runs_whose_answer_has_come(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let waiting = || {
        let mut run = sample.run_without_key();
        run.state = RunState::Waiting { until: None, on: WaitsOn::ANSWER };
        run
    };
    let (asking, answered, timed) = (waiting(), waiting(), sample.timer(300));
    let question = |run: &Run| {
        let mut question = sample.escalation("?");
        question.run = Some(run.id);
        question
    };
    let (open, closed) = (question(&asking), question(&answered));
    admit(store, &[sample.change().run(asking.clone()).escalation(open.clone())]).await;
    admit(store, &[sample.change().run(answered.clone()).escalation(closed.clone())]).await;
    admit(store, &[sample.change().run(timed)]).await;
    let found = async |after: i64, limit: u32| store.run_answered(RunId(after), limit).await.unwrap();
    assert_eq!(found(0, 10).await, []);
    admit(store, &[sample.change().escalation(super::sample::answered(&closed, "ann"))]).await;
    assert_eq!(found(0, 10).await, from_ref(&answered));
    admit(store, &[sample.change().escalation(super::sample::answered(&open, "ann"))]).await;
    assert_eq!(found(0, 10).await, [asking.clone(), answered.clone()]);
    assert_eq!(found(asking.id.0, 1).await, from_ref(&answered));

    // The question is open, but no run waits for it: its effect is known to have happened.
    let twice = Question { kind: QuestionKind::Duplicated, ..question(&answered) };
    admit(store, &[sample.change().escalation(twice)]).await;
    assert_eq!(found(asking.id.0, 1).await, from_ref(&answered));

    // The run was answered from a record of another run, and that record has an open question.
    let parked = sample.escalation("?");
    let started = sample.call(&asking, "pay/1", "shared");
    let record = Record { escalation: Some(parked.id), ..sample.record_on(&started, State::Started) };
    let mut used = sample.change();
    used.used = Some(Box::new(sample.used(&started, &answered)));
    admit(store, &[sample.change().record(started)]).await;
    admit(store, &[used]).await;
    admit(store, &[sample.change().record(record.clone()).escalation(parked.clone())]).await;
    assert_eq!(found(asking.id.0, 1).await, []);
    let withdrawn = sample.change().escalation(super::sample::answered(&parked, "counterfoil"));
    admit(
        store,
        &[withdrawn.record(Record { escalation: None, ..sample.record_on(&record, State::Started) })],
    )
    .await;
    assert_eq!(found(asking.id.0, 1).await, [answered]);
}

/// Runs of any state whose deadline has passed are listed, the earliest first, until they have ended or the command
/// that cancels them is there; a blocked run until it has received the command.
pub async fn runs_whose_deadline_has_passed(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let until = |run: Run, deadline: i64| Run { deadline: Some(Timestamp(deadline)), ..run };
    let (late, active) = (until(sample.timer(900), 300), until(other.run("a"), 200));
    let (ended, endless) = (until(sample.run("a"), 100), sample.timer(50));
    admit(store, &[&late, &active, &ended, &endless].map(|run| sample.change().run(run.clone()))).await;
    let over = RunState::Succeeded { output: inline(json!("over")) };
    admit(store, &[sample.change().run(sample.run_on(&ended, over))]).await;

    let overdue =
        async |until: i64, limit: u32| store.run_overdue(Timestamp(until), None, limit).await.unwrap();
    let next = async || store.next_due(Timestamp(60)).await.unwrap();
    assert_eq!(overdue(199, 10).await, []);
    assert_eq!(overdue(200, 10).await, from_ref(&active), "of any tenant");
    assert_eq!(overdue(i64::MAX, 10).await, [active.clone(), late.clone()]);
    assert_eq!(overdue(i64::MAX, 1).await, from_ref(&active));
    assert_eq!(next().await, Some(Timestamp(200)));

    let other_command = sample.signal(&late, CANCEL, "by a person");
    admit(store, &[sent(&sample, &other_command)]).await;
    let told = [other.signal(&active, CANCEL, DEADLINE), sample.signal(&late, CANCEL, DEADLINE)];
    admit(store, &told.each_ref().map(|signal| sent(&sample, signal))).await;
    assert_eq!(overdue(i64::MAX, 10).await, [], "they will receive it");
    let blocked = sample.run_on(&late, RunState::Blocked { failure: payload(&json!("asked")) });
    admit(store, &[sample.change().run(blocked.clone())]).await;
    assert_eq!(overdue(i64::MAX, 10).await, from_ref(&blocked), "this one receives nothing");
    assert_eq!(next().await, Some(Timestamp(300)));
    let received = Change { received: Some(Box::new(told[1].clone())), ..sample.change() };
    admit(store, &[received]).await;
    assert_eq!(overdue(i64::MAX, 10).await, []);
}

/// Reads a list from behind the last row of each page on, until a page is shorter than `limit`.
async fn paged<T: Clone>(limit: usize, mut page: impl AsyncFnMut(Option<&T>) -> Vec<T>) -> Vec<T> {
    let mut all = Vec::new();
    loop {
        let last = all.last().cloned();
        let next = page(last.as_ref()).await;
        let listed = next.len();
        all.extend(next);
        if listed < limit {
            return all;
        }
    }
}

/// A list of due work goes on behind a row, of whatever tenant, also where many rows have the same instant. Only its last
/// page is shorter than its limit.
pub async fn lists_go_on_behind_a_row(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let other = sample.for_tenant("globex");
    let (mut runs, mut looks, mut schedules) = (Vec::new(), Vec::new(), Vec::new());
    for (i, at) in [200, 100, 100, 100, 100].into_iter().enumerate() {
        let by = if i % 2 == 0 { &other } else { &sample };
        runs.push(Run { deadline: Some(Timestamp(at)), ..by.timer(at) });
        looks.push(by.look(&by.record(&i.to_string()), at));
        schedules.push(by.schedule(&i.to_string(), at));
    }
    for ((run, look), schedule) in runs.iter().zip(&looks).zip(&schedules) {
        let change = Change { schedule: Some(Box::new(schedule.clone())), ..sample.change() };
        admit(store, &[change.run(run.clone()).look(look.clone())]).await;
    }
    runs.sort_by_key(|run| (run.deadline, run.id));
    looks.sort_by_key(|look| (look.due_at, look.tenant.clone(), look.record));
    schedules.sort_by_key(|schedule| (schedule.next_at, schedule.tenant.clone(), schedule.name.clone()));
    let until = Timestamp(200);
    for (limit, rows) in [(1, 1), (2, 2), (5, 5), (9, 9)] {
        let due = async |after: Option<&Run>| store.run_due(until, after, limit).await.unwrap();
        assert_eq!(paged(rows, due).await, runs, "{limit} at once");
        let overdue = async |after: Option<&Run>| store.run_overdue(until, after, limit).await.unwrap();
        assert_eq!(paged(rows, overdue).await, runs, "{limit} at once");
        let due = async |after: Option<&Look>| store.look_due(until, after, limit).await.unwrap();
        assert_eq!(paged(rows, due).await, looks, "{limit} at once");
        let due = async |after: Option<&Schedule>| store.schedule_due(until, after, limit).await.unwrap();
        assert_eq!(paged(rows, due).await, schedules, "{limit} at once");
    }
}

/// The earliest instant after a given one that any run or record waits for; none if nothing waits.
pub async fn next_due_is_the_earliest_of_all(store: &dyn Store) {
    let sample = Sample::enrol(store, "ann").await;
    let mut record = sample.record("a");
    let run = sample.run("a");
    admit(store, &[sample.change().run(run.clone()).record(record.clone())]).await;
    let after = async |after: i64| store.next_due(Timestamp(after)).await.unwrap();
    let next = async || after(i64::MIN).await;
    assert_eq!(next().await, None);

    let waiting =
        sample.run_on(&run, RunState::Waiting { until: Some(Timestamp(500)), on: WaitsOn::NOTHING });
    admit(store, &[sample.change().run(waiting)]).await;
    assert_eq!(next().await, Some(Timestamp(500)));

    record = sample.committed(&record);
    let look = sample.look(&record, 400);
    admit(store, &[sample.change().record(record).look(look.clone())]).await;
    assert_eq!(next().await, Some(Timestamp(400)));
    assert_eq!(after(399).await, Some(Timestamp(400)));
    assert_eq!(after(400).await, Some(Timestamp(500)), "what lies behind does not hide what comes");
    assert_eq!(after(500).await, None);

    admit(store, &[sample.change().look(look.done())]).await;
    assert_eq!(next().await, Some(Timestamp(500)));
}

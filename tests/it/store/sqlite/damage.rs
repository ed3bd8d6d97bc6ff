//! A damaged row is told by name, is not repaired by guessing, and the others are still readable (HAZARDS G10).

use counterfoil::store::conformance::sample::{self, Sample};
use counterfoil::store::{Run, RunFilter, RunState, Store, StoreError, Turns, WaitsOn};
use counterfoil::{RecordId, RunId, Timestamp};

use super::{Folder, closed, plain, run};

fn is_corrupt<T: std::fmt::Debug>(what: &str, result: &Result<T, StoreError>, row: &str) {
    let Err(StoreError::Corrupt { row: named, .. }) = result else { panic!("{what}: {result:?}") };
    assert_eq!(named, row, "{what}");
}

#[tokio::test]
async fn a_damaged_record_is_named_and_the_others_are_read() {
    let ways = [
        "status = 2, outcome = NULL",
        "status = 1, outcome = '{}'",
        "status = 3, outcome = 'no json'",
        "status = 2, outcome = '{}', compensation = '{}'",
        "status = 4, outcome = '{}', compensation = NULL",
        "status = 9",
        "status = 2, outcome = '@too short'",
        "class = 99",
        "basis = 99",
        "request_hash = x'00'",
        "request = '@'",
        "revision = -1",
        "attempts = 99999999999",
        "tenant = tenant, operation = ''",
    ];
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = plain(&folder.database()).await;
    run(&mut other, "PRAGMA ignore_check_constraints = ON").await;
    for (i, damage) in ways.into_iter().enumerate() {
        let (owner, sound) = (sample.run(&i.to_string()), sample.record(&format!("sound {i}")));
        let hurt = sample.call(&owner, "pay/1", &i.to_string());
        let changes = [sample.change().record(hurt.clone()), sample.change().record(sound.clone())];
        store.commit(&changes).await.unwrap();
        run(&mut other, format!("UPDATE record SET {damage} WHERE id = {}", hurt.id.0)).await;

        let row = format!("record {:x}", hurt.id.0);
        is_corrupt(damage, &store.record_at(&sample.tenant, hurt.id).await, &row);
        is_corrupt(damage, &store.record_find(&sample.tenant, &hurt.key).await, &row);
        assert_eq!(store.record_at(&sample.tenant, sound.id).await.unwrap(), Some(sound.clone()));
        let update = sample.change().record(sample.committed(&sound));
        assert!(store.commit(&[update]).await.unwrap()[0].is_admitted(), "{damage}");
    }
}

#[tokio::test]
async fn a_damaged_run_is_named_and_the_others_are_read() {
    let ways = [
        "state = 3, outcome = NULL",
        "state = 1, outcome = '{}'",
        "state = 1, wake_at = 7",
        "state = 9",
        "state = 3, outcome = '@'",
        "workflow = ''",
        "version = -1",
        "input_hash = x''",
    ];
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = plain(&folder.database()).await;
    run(&mut other, "PRAGMA ignore_check_constraints = ON").await;
    for (i, damage) in ways.into_iter().enumerate() {
        let (hurt, sound) = (sample.run(&i.to_string()), sample.run(&format!("sound {i}")));
        store.commit(&[&hurt, &sound].map(|run| sample.change().run(run.clone()))).await.unwrap();
        run(&mut other, format!("UPDATE run SET {damage} WHERE id = {}", hurt.id.0)).await;
        is_corrupt(damage, &store.run_find(&sample.tenant, hurt.id).await, &format!("run {:x}", hurt.id.0));
        assert_eq!(store.run_find(&sample.tenant, sound.id).await.unwrap(), Some(sound));
    }
}

/// Whoever reads a list page by page must not take a page that is damaged from one end to the other for its end.
#[tokio::test]
async fn a_page_of_damaged_rows_is_not_the_end_of_a_list() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let runs = |state: RunState| (0..7).map(move |_| state.clone()).collect::<Vec<_>>();
    let states = runs(RunState::Active)
        .into_iter()
        .chain(runs(RunState::Waiting { until: None, on: WaitsOn::ANSWER }));
    let runs: Vec<_> = states.map(|state| Run { state, ..sample.run_without_key() }).collect();
    let records: Vec<_> = (0..7).map(|i| sample.record(&i.to_string())).collect();
    let changes = runs.iter().map(|run| sample.change().run(run.clone()));
    let changes: Vec<_> =
        changes.chain(records.iter().map(|record| sample.change().record(record.clone()))).collect();
    store.commit(&changes).await.unwrap();
    let new = Sample::enrol(&store, "new").await;
    store.commit(&[sample::fence_others(new.fence)]).await.unwrap();
    let mut other = plain(&folder.database()).await;
    for hurt in runs[..5].iter().chain(&runs[7..12]) {
        run(&mut other, format!("UPDATE run SET version = -1 WHERE id = {}", hurt.id.0)).await;
    }
    for hurt in &records[..5] {
        run(&mut other, format!("UPDATE record SET basis = 99 WHERE id = {}", hurt.id.0)).await;
    }
    let start = RunId(i64::MIN);
    let ids = |runs: &[Run]| runs.iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(&store.run_orphans(start, 2).await.unwrap()), ids(&runs[5..6]));
    assert_eq!(ids(&store.run_answered(start, 2).await.unwrap()), ids(&runs[12..13]));
    assert_eq!(ids(&store.run_list(&sample.tenant, start, 2).await.unwrap()), ids(&runs[5..6]));
    for filter in [RunFilter::new(), RunFilter::new().newest_first()] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = store.run_page(&sample.tenant, &filter, after.as_ref(), 2).await.unwrap();
            listed.extend(page.runs.iter().map(|run| run.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listed.sort();
        assert_eq!(listed, [ids(&runs[5..7]), ids(&runs[12..])].concat());
    }
    let orphans = store.record_orphans(RecordId(i64::MIN), 2).await.unwrap();
    assert_eq!(orphans, records[5..6]);
    assert_eq!(store.record_orphans(records[5].id, 2).await.unwrap(), records[6..]);
    assert_eq!(store.record_orphans(records[6].id, 2).await.unwrap(), [], "the end");
}

/// A list of due work is read on only if its page is full, so that damaged rows must not shorten a page.
#[tokio::test]
async fn damaged_rows_do_not_shorten_a_list_of_due_work() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let runs: Vec<_> = (0..9).map(|at| sample.timer(at)).collect();
    let changes: Vec<_> = runs.iter().map(|run| sample.change().run(run.clone())).collect();
    store.commit(&changes).await.unwrap();
    let mut other = plain(&folder.database()).await;
    for hurt in runs[..3].iter().chain(&runs[4..6]) {
        run(&mut other, format!("UPDATE run SET version = -1 WHERE id = {}", hurt.id.0)).await;
    }
    let due = async |after: Option<&Run>| store.run_due(Timestamp::MAX, after, 2).await.unwrap();
    assert_eq!(due(None).await, [runs[3].clone(), runs[6].clone()]);
    assert_eq!(due(Some(&runs[6])).await, runs[7..]);
    assert_eq!(due(Some(&runs[8])).await, []);
}

#[tokio::test]
async fn a_damaged_history_is_told_and_the_others_are_read() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = plain(&folder.database()).await;
    run(&mut other, "PRAGMA ignore_check_constraints = ON").await;
    let sound = sample.run("sound");
    store.commit(&[sample.change().run(sound.clone()).step(sample.step(&sound, "1"))]).await.unwrap();
    let whole = store.run_history(&sample.tenant, sound.id, Turns::ALL).await.unwrap();
    for (i, damage) in [
        "UPDATE step SET kind = 99 WHERE run = ?",
        "UPDATE step SET value = '@' WHERE run = ?",
        "UPDATE step SET input_hash = x'01' WHERE run = ?",
        "UPDATE record SET request_hash = x'01' WHERE run = ?",
        "UPDATE record SET status = 2, outcome = '@' WHERE run = ?",
    ]
    .into_iter()
    .enumerate()
    {
        let hurt = sample.run(&i.to_string());
        let call = sample.call(&hurt, "pay/1", &i.to_string());
        let change = sample.change().run(hurt.clone()).step(sample.step(&hurt, "1")).record(call);
        store.commit(&[change]).await.unwrap();
        run(&mut other, damage.replace('?', &hurt.id.0.to_string())).await;
        let history = store.run_history(&sample.tenant, hurt.id, Turns::ALL).await;
        assert!(matches!(history, Err(StoreError::Corrupt { .. })), "{damage}: {history:?}");
        assert_eq!(store.run_history(&sample.tenant, sound.id, Turns::ALL).await.unwrap(), whole);
    }
}

#[tokio::test]
async fn damaged_pages_are_told_and_nothing_panics() {
    const PAGE: usize = 4096;
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let changes: Vec<_> = (0..300).map(|i| sample.change().record(sample.record(&i.to_string()))).collect();
    store.commit(&changes).await.unwrap();
    store.checkpoint().await.unwrap();
    drop(store);
    closed(&folder.database()).await;
    let whole = std::fs::read(folder.database()).unwrap();
    let mut told = 0;
    for page in 1..whole.len() / PAGE {
        let mut bytes = whole.clone();
        bytes[page * PAGE..(page + 1) * PAGE].fill(0xa5);
        let hurt = Folder::new();
        std::fs::write(hurt.database(), bytes).unwrap();
        let Ok(store) = counterfoil::store::sqlite::Sqlite::open(hurt.database()).await else {
            told += 1;
            continue;
        };
        for change in &changes {
            let record = change.record.as_ref().unwrap();
            told += usize::from(store.record_find(&sample.tenant, &record.key).await.is_err());
            told += usize::from(store.record_at(&sample.tenant, RecordId(record.id.0)).await.is_err());
        }
        told += usize::from(store.run_list(&sample.tenant, RunId(0), 10).await.is_err());
        let _ = store.commit(&changes).await;
    }
    assert!(told > 300, "{told}");
}

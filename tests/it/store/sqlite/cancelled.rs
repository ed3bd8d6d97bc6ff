//! Fact 4: what a dropped future leaves behind. A connection that nobody rolled back would take the next writes
//! into a transaction that never ends, and answer that they are durable.

use counterfoil::store::conformance::cancel::drop_after;
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::{Change, Store, Verdict};
use sqlx::sqlite::SqliteConnection;

use super::{Folder, number, plain};

/// One statement that commits by itself; several in one transaction; judged one by one in savepoints.
const WAYS: [&str; 3] = ["one table", "many tables", "judged"];

fn batch(way: &str, sample: &Sample, name: &str) -> Vec<Change> {
    let whole = |part: usize| {
        let run = sample.run(&format!("{name}/{part}"));
        let record = sample.call(&run, "pay/1", &format!("{name}/{part}"));
        let change = sample.change().record(record);
        if way == "one table" { change } else { change.step(sample.step(&run, "1")).run(run) }
    };
    let mut changes: Vec<_> = (0..3).map(whole).collect();
    if way == "judged" {
        changes.push(sample.change().record(sample.record("taken")));
    }
    changes
}

/// How many of a batch's rows another connection sees, and how many there would be.
async fn seen(connection: &mut SqliteConnection, way: &str, name: &str) -> (i64, i64) {
    let records =
        number(connection, format!("SELECT count(*) FROM record WHERE key GLOB 'pay:{name}/*'")).await;
    if way == "one table" {
        return (records, 3);
    }
    let runs = number(connection, format!("SELECT count(*) FROM run WHERE key GLOB '{name}/*'")).await;
    let steps = format!("SELECT count(*) FROM step JOIN run ON run.id = step.run WHERE key GLOB '{name}/*'");
    (records + runs + number(connection, steps).await, 9)
}

#[tokio::test]
async fn fact_4_a_dropped_commit_takes_no_later_one_with_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    let sample = Sample::enrol(&store, "ann").await;
    let mut other = plain(&folder.database()).await;
    let taken = [sample.change().record(sample.record("taken"))];
    assert_eq!(store.commit(&taken).await.unwrap(), [Verdict::Admitted]);
    let mut dropped = 0;
    for first in WAYS {
        for then in WAYS {
            for polls in 1.. {
                let (one, two) =
                    (format!("{first}-{then}-{polls}-one"), format!("{first}-{then}-{polls}-two"));
                let ended = drop_after(store.commit(&batch(first, &sample, &one)), polls).await;
                let verdicts = store.commit(&batch(then, &sample, &two)).await.unwrap();
                assert_eq!(verdicts[..3], [Verdict::Admitted, Verdict::Admitted, Verdict::Admitted]);
                let (found, all) = seen(&mut other, then, &two).await;
                assert_eq!(found, all, "{two}: admitted, and not there");
                let (found, all) = seen(&mut other, first, &one).await;
                assert!(found == 0 || found == all, "{one}: {found} of {all} rows");
                if ended.is_some() {
                    assert_eq!(found, all, "{one}: it ended well");
                    break;
                }
                dropped += 1;
            }
        }
    }
    assert!(dropped >= 15, "dropped only {dropped} times: is nothing awaited any more?");
}

#[tokio::test]
async fn fact_4_a_dropped_commit_is_whole_after_a_restart() {
    let folder = Folder::new();
    for way in WAYS {
        for polls in 1.. {
            let store = folder.open().await;
            let name = format!("{way}-{polls}");
            let sample = Sample::enrol(&store, &name).await;
            let ended = drop_after(store.commit(&batch(way, &sample, &name)), polls).await;
            drop(store); // with the commit under way
            let store = folder.open().await;
            let again = Sample::enrol(&store, &format!("after {name}")).await;
            store.commit(&[again.change().record(again.record(&format!("after {name}")))]).await.unwrap();
            let (found, all) = seen(&mut plain(&folder.database()).await, way, &name).await;
            assert!(found == 0 || found == all, "{name}: {found} of {all} rows");
            if ended.is_some() {
                break;
            }
        }
    }
}

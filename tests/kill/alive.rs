//! Former lives that are not dead yet, lives that are asked to end, and runs that kill their process each time.

use std::time::Duration;

use counterfoil::sim::CrashPoint;
use counterfoil::store::QuestionKind;
use rustix::process::Signal;

use crate::harness::case_notice::classes::Class;
use crate::harness::role::{Ended, LEFT_AMBIGUOUS, Order, Role};
use crate::{Bench, FOR_EVER, at_first, run};

/// A14, R-FLOW-8, B06: never while the former process still lives, be it busy or stopped; at once when it is dead.
#[test]
fn a_second_process_is_refused_until_the_first_is_dead() {
    run(async {
        let class = Class::ReplaysKeyWithLookup;
        let bench = Bench::new(&at_first(class, |fault| fault.hang_after_commit = true)).await;
        let order = Order { patience: FOR_EVER, ..bench.order(class) };
        let first = bench.place.program.start(&Role::Life(order.clone())).unwrap();
        bench.world.received(1).await.unwrap(); // it holds a run, and a call of it is under way

        for signal in [Signal::STOP, Signal::CONT] {
            first.signal(signal).unwrap();
            let second = bench.life(&order).await;
            let message = second.owned.expect("the second process was let in while the first one lived");
            assert!(message.contains("another process that is alive"), "{message}");
            assert!(second.report.is_none());
        }
        assert_eq!(bench.requests().await, 1, "a refused process has sent something");

        first.kill().await.unwrap();
        let third = bench.report(&order).await;
        assert_eq!(third.ended, Ended::Succeeded);
        assert!(third.crossed(CrashPoint::AfterTakeover) > 0, "the run was not taken over: {third:?}");
        assert_eq!((bench.requests().await, bench.effects(&order).await), (1, 1));
    });
}

/// A10: a call in flight is drained, and its outcome recorded.
#[test]
fn sigterm_drains_a_call_in_flight() {
    run(async {
        let class = Class::Blind; // were the outcome lost, nobody could find it out
        let bench = Bench::new(&at_first(class, |fault| fault.answer_late_ms = 1000)).await;
        let order = bench.order(class);
        let life = bench.place.program.start(&Role::Life(order.clone())).unwrap();
        bench.world.received(1).await.unwrap();
        life.signal(Signal::TERM).unwrap();
        let death = life.death().await.unwrap();
        let report = death.report.expect("it drains and says so");
        assert_eq!(report.ended, Ended::Terminated);
        assert_eq!(death.status.code(), Some(0));
        assert_eq!(report.record.expect("a record").state, "committed");

        let next = bench.report(&order).await;
        assert_eq!(next.ended, Ended::Succeeded, "{next:?}");
        assert_eq!((bench.requests().await, bench.effects(&order).await), (1, 1));
    });
}

/// A10: what cannot be drained in time is left as what it is, ambiguous; the exit code says so, and the next life
/// asks the world.
#[test]
fn sigterm_leaves_a_call_that_hangs_ambiguous() {
    run(async {
        let class = Class::ReplaysKeyWithLookup;
        let bench = Bench::new(&at_first(class, |fault| fault.hang_after_commit = true)).await;
        let drain = Duration::from_millis(200);
        let order = Order { patience: FOR_EVER, drain, ..bench.order(class) };
        let life = bench.place.program.start(&Role::Life(order.clone())).unwrap();
        bench.world.received(1).await.unwrap();
        life.signal(Signal::TERM).unwrap();
        let death = life.death().await.unwrap();
        assert_eq!(death.status.code(), Some(LEFT_AMBIGUOUS), "{death:?}");
        assert_eq!(death.report.unwrap().record.expect("a record").state, "started");

        let next = bench.report(&order).await;
        assert_eq!(next.ended, Ended::Succeeded, "{next:?}");
        assert!(next.crossed(CrashPoint::AfterLookup) > 0, "the world was not asked: {next:?}");
        assert_eq!((bench.requests().await, bench.effects(&order).await), (1, 1));
    });
}

/// A10: no new call starts. The provider asks for a pause, and in that pause the process is asked to end.
#[test]
fn sigterm_starts_no_new_call() {
    run(async {
        let class = Class::ReplaysKeyWithLookup;
        let pause = |fault: &mut crate::Behaviour| {
            fault.status_before = Some(429);
            fault.retry_after_s = Some(2);
        };
        let bench = Bench::new(&at_first(class, pause)).await;
        let order = bench.order(class); // drains for five seconds: long enough for the second call to start
        let life = bench.place.program.start(&Role::Life(order.clone())).unwrap();
        bench.world.received(1).await.unwrap();
        life.signal(Signal::TERM).unwrap();
        let death = life.death().await.unwrap();
        assert_eq!(death.status.code(), Some(0), "{death:?}");
        assert_eq!(bench.requests().await, 1, "a call was started after SIGTERM");

        let next = bench.report(&order).await;
        assert_eq!(next.ended, Ended::Succeeded, "{next:?}");
        assert_eq!((bench.requests().await, bench.effects(&order).await), (2, 1));
    });
}

/// K06: a run whose code kills its process each time is stopped before it does so for ever.
#[test]
fn a_run_that_kills_its_process_each_time_is_quarantined() {
    run(async {
        let class = Class::ReplaysKeyWithLookup;
        let bench = Bench::of(class).await;
        let poison = Order { kill: Some("before-checkpoint".to_owned()), ..bench.order(class) };
        let mut deaths = 0;
        let last = loop {
            let death = bench.life(&poison).await;
            if !death.was_killed() {
                break death.report.expect("a life that was not killed has something to say");
            }
            deaths += 1;
            assert!(deaths < 50, "it is never quarantined");
        };
        // The first process was not the second's to count: ten more died while they had the run.
        assert_eq!(deaths, 11);
        assert!(matches!(&last.ended, Ended::Blocked(why) if why.contains("died 11 times")), "{last:?}");
        assert_eq!(last.questions, [QuestionKind::Quarantined]);
        assert_eq!(bench.requests().await, 0);

        // It is not lost: the cause is mended, somebody says so, and it goes on.
        let mended = bench.report(&Order { resume: true, ..bench.order(class) }).await;
        assert_eq!(mended.ended, Ended::Succeeded, "{mended:?}");
        assert_eq!(bench.effects(&poison).await, 1);
    });
}

/// K05, K06: a call that kills its process each time is sent as often as its policy says, over all processes.
#[test]
fn a_call_that_kills_its_process_each_time_is_not_sent_for_ever() {
    run(async {
        let class = Class::ReplaysKey; // sent again at once, since the provider answers for the key
        let bench = Bench::of(class).await;
        let poison = Order { kill: Some("after-call".to_owned()), ..bench.order(class) };
        let mut deaths = 0;
        let last = loop {
            let death = bench.life(&poison).await;
            if !death.was_killed() {
                break death.report.expect("a life that was not killed has something to say");
            }
            deaths += 1;
            assert!(deaths < 50, "it is sent for ever");
        };
        assert_eq!(last.ended, Ended::Asked, "{last:?}");
        assert_eq!(last.questions, [QuestionKind::Ambiguous]);
        assert_eq!((deaths, bench.requests().await, bench.effects(&poison).await), (5, 5, 1));
    });
}

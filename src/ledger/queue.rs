//! Queues, and the choice of the runs of a queue that begin next. The choice is pure and the same in every store: a
//! store reads the queue while it locks out all other workers, calls this module, and writes the result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};

/// A queue: a limit on how many of its runs are carried out at once, and how fast they begin.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::Queue;
///
/// let mail = Queue::new("mail")
///     .concurrency(10) // in all, over all workers of the database
///     .per_tenant(3)
///     .per_key(1) // one after the other for each `queue_key`
///     .rate(100, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Queue {
    name: String,
    concurrency: Option<u32>,
    per_worker: Option<u32>,
    per_tenant: Option<u32>,
    per_key: Option<u32>,
    rate: Option<Rate>,
    frees_while_waiting: bool,
}

/// The rate at which runs may begin: a token bucket, refilled evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    starts: u32,
    per: Duration,
    burst: u32,
}

impl Queue {
    /// A queue without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            concurrency: None,
            per_worker: None,
            per_tenant: None,
            per_key: None,
            rate: None,
            frees_while_waiting: false,
        }
    }

    /// Sets the maximum number of runs in flight, over all workers of the database and all tenants.
    pub fn concurrency(mut self, runs: u32) -> Self {
        self.concurrency = Some(runs);
        self
    }

    /// Sets the maximum number of runs in flight on one worker.
    pub fn per_worker(mut self, runs: u32) -> Self {
        self.per_worker = Some(runs);
        self
    }

    /// Sets the maximum number of runs in flight of one tenant.
    pub fn per_tenant(mut self, runs: u32) -> Self {
        self.per_tenant = Some(runs);
        self
    }

    /// Sets the maximum number of runs in flight under one queue key of a tenant. Runs without a queue key are not
    /// counted.
    pub fn per_key(mut self, runs: u32) -> Self {
        self.per_key = Some(runs);
        self
    }

    /// Sets the maximum number of runs that begin within `per`: a token bucket of this size, refilled evenly and kept
    /// in the database. After a pause all of them may begin at once, unless a smaller [burst](Self::burst) is set.
    /// The time is measured by the clock of the database, on SQLite by that of the machine.
    pub fn rate(mut self, starts: u32, per: Duration) -> Self {
        self.rate = Some(Rate { starts, per, burst: starts });
        self
    }

    /// Sets the maximum number of runs that may begin at once under the [rate](Self::rate): 1 spreads them evenly.
    pub fn burst(mut self, runs: u32) -> Self {
        let rate = self.rate.get_or_insert(Rate { starts: 0, per: Duration::ZERO, burst: runs });
        rate.burst = runs;
        self
    }

    /// Frees the place of a run that waits as a row (for a signal, a timer, a child or an answer); the run queues
    /// again before it goes on. Otherwise a run keeps its place until it ends or is blocked, so that with
    /// `per_key(1)` no other run of the key comes in between.
    pub fn free_while_waiting(mut self) -> Self {
        self.frees_while_waiting = true;
        self
    }

    /// The name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn frees_while_waiting(&self) -> bool {
        self.frees_while_waiting
    }

    pub(crate) const fn is_rated(&self) -> bool {
        self.rate.is_some()
    }

    pub(crate) const fn is_limited_per_worker(&self) -> bool {
        self.per_worker.is_some()
    }

    /// Checks the queue. The error says why it cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        Name::new(self.name.as_str()).map_err(|error| error.to_string())?;
        let limits = [self.concurrency, self.per_worker, self.per_tenant, self.per_key];
        let of_rate = |rate: Rate| rate.starts == 0 || rate.burst == 0 || rate.per.is_zero();
        if limits.contains(&Some(0)) || self.rate.is_some_and(of_rate) {
            return Err("with a limit of nothing no run of it would ever begin".into());
        }
        Ok(())
    }
}

impl Rate {
    fn micros(self, tokens: u32) -> i64 {
        let each = (self.per.as_micros() / u128::from(self.starts.max(1))).max(1);
        i64::try_from(each.saturating_mul(u128::from(tokens))).unwrap_or(i64::MAX)
    }

    /// The number of tokens in the bucket at `at`, if tokens are spent until `spent_until`.
    fn tokens(self, spent_until: Timestamp, at: Timestamp) -> u32 {
        let owed = spent_until.0.max(at.0).saturating_sub(at.0);
        let left = self.micros(self.burst).saturating_sub(owed).max(0) / self.micros(1);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn spend(self, spent_until: Timestamp, at: Timestamp, tokens: u32) -> Timestamp {
        if tokens == 0 {
            return spent_until; // not `at`, which would be a change
        }
        Timestamp(spent_until.0.max(at.0).saturating_add(self.micros(tokens)))
    }

    /// The instant at which the next token is available.
    fn next(self, spent_until: Timestamp) -> Timestamp {
        Timestamp(spent_until.0.saturating_add(self.micros(1)).saturating_sub(self.micros(self.burst)))
    }
}

/// A request of a worker for runs of a queue. As many as the limits allow become the worker's, in one transaction
/// that locks every other worker out of the queue.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The queue, with its limits as this worker knows them.
    pub queue: Queue,
    /// The present instant, by the clock of the worker.
    pub at: Timestamp,
    /// The maximum number of runs to admit.
    pub most: u32,
    /// The workflows and versions whose runs may be admitted. `None`: all, as no other worker knows other workflows.
    pub known: Option<Vec<(Name, u32)>>,
}

impl Admission {
    /// True if the worker may take a run of this workflow and version.
    pub(crate) fn knows(&self, workflow: &Name, version: u32) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|known| known.iter().any(|(name, v)| name == workflow && *v == version))
    }
}

/// The state of a queue beside its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// The instant until which the tokens of the rate are spent. Each admission of runs moves it, by at least a
    /// microsecond: two equal states of a queue have no admission between them.
    pub(crate) spent_until: Timestamp,
    /// The tenant that was served last.
    pub(crate) served: Option<String>,
    /// The instant at which a run that waits for a token can have one; `None` if none waits for a token.
    pub(crate) due_at: Option<Timestamp>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { spent_until: Timestamp::MIN, served: None, due_at: None }
    }
}

/// The number of places that the runs of a tenant take under one queue key.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) tenant: Tenant,
    pub(crate) key: Option<String>,
    pub(crate) by_all: u32,
    /// The places that runs of the asking worker take.
    pub(crate) by_own: u32,
}

/// A run that may begin.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) id: RunId,
    pub(crate) tenant: Tenant,
    pub(crate) key: Option<String>,
    pub(crate) priority: i32,
    pub(crate) created_at: Timestamp,
}

impl Candidate {
    /// The order of the runs of a tenant: the highest priority first, within a priority the oldest first.
    pub(crate) fn order(&self) -> (Reverse<i32>, Timestamp, RunId) {
        (Reverse(self.priority), self.created_at, self.id)
    }
}

/// The free places of a queue.
pub(crate) struct Room<'a> {
    admission: &'a Admission,
    bucket: Bucket,
    /// The free places by all limits except the rate.
    places: u32,
    tokens: Option<u32>,
    tenants: BTreeMap<Tenant, u32>,
    keys: BTreeMap<(Tenant, String), u32>,
}

/// The runs that begin, and the state of the queue afterwards.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) runs: Vec<(Tenant, RunId)>,
    pub(crate) bucket: Bucket,
}

impl Chosen {
    /// Keeps the runs of the tenant whose turn it is first, and the state of the queue after them. The rest is chosen
    /// again.
    #[cfg(feature = "postgres")]
    pub(crate) fn first_tenant(mut self, admission: &Admission, before: &Bucket) -> Self {
        let Some((first, _)) = self.runs.first().cloned() else { return self };
        let all = self.runs.len();
        self.runs.retain(|(tenant, _)| *tenant == first);
        if self.runs.len() == all {
            return self;
        }
        let bucket = Bucket { served: Some(first.as_str().to_owned()), ..before.clone() };
        Room::of(admission, bucket, Vec::new()).chosen(self.runs, false)
    }
}

impl<'a> Room<'a> {
    pub(crate) fn of(admission: &'a Admission, bucket: Bucket, taken: Vec<Taken>) -> Self {
        let queue = &admission.queue;
        let (mut by_all, mut by_own) = (0_u32, 0_u32);
        let (mut tenants, mut keys) = (BTreeMap::new(), BTreeMap::new());
        for Taken { tenant, key, by_all: all, by_own: own } in taken {
            by_all = by_all.saturating_add(all);
            by_own = by_own.saturating_add(own);
            *tenants.entry(tenant.clone()).or_default() += all;
            if let Some(key) = key {
                *keys.entry((tenant, key)).or_default() += all;
            }
        }
        let left =
            |limit: Option<u32>, taken: u32| limit.map_or(u32::MAX, |limit| limit.saturating_sub(taken));
        let places = left(queue.concurrency, by_all).min(left(queue.per_worker, by_own)).min(admission.most);
        let tokens = queue.rate.map(|rate| rate.tokens(bucket.spent_until, admission.at));
        Self { admission, bucket, places, tokens, tenants, keys }
    }

    /// The maximum number of runs that may begin now.
    pub(crate) fn left(&self) -> u32 {
        self.places.min(self.tokens.unwrap_or(u32::MAX))
    }

    /// The tenants among `tenants` that have not reached their limit.
    pub(crate) fn open(&self, mut tenants: Vec<Tenant>) -> Vec<Tenant> {
        tenants.retain(|tenant| self.has_room(tenant));
        tenants
    }

    fn has_room(&self, tenant: &Tenant) -> bool {
        let taken = self.tenants.get(tenant).copied().unwrap_or(0);
        self.admission.queue.per_tenant.is_none_or(|limit| taken < limit)
    }

    fn is_full(&self, tenant: &Tenant, key: &str) -> bool {
        let taken = self.keys.get(&(tenant.clone(), key.to_owned())).copied().unwrap_or(0);
        self.admission.queue.per_key.is_some_and(|limit| taken >= limit)
    }

    /// The keys under which no other run may begin. Their runs are not read: otherwise many runs of one key would
    /// hide the others.
    pub(crate) fn full_keys(&self) -> Vec<(&Tenant, &str)> {
        let full = |(tenant, key): &(&'_ Tenant, &'_ str)| self.is_full(tenant, key);
        self.keys.keys().map(|(tenant, key)| (tenant, key.as_str())).filter(full).collect()
    }

    /// The number of waiting runs that are read for each tenant: with few tenants all that may begin and one more,
    /// with many tenants the first ones. A worker that is admitted any run asks again, and so reaches the later runs.
    pub(crate) fn depth(&self, tenants: usize) -> u32 {
        let left = self.left();
        let each = u64::from(left) * 4 / (tenants as u64).max(1);
        u32::try_from(each).unwrap_or(left).clamp(1, left.saturating_add(1))
    }

    /// Admits no run; `waiting` is true if a run would have begun.
    pub(crate) fn nothing(self, waiting: bool) -> Chosen {
        self.chosen(Vec::new(), waiting)
    }

    /// Chooses runs one by one for the tenant with the fewest places; if several have the fewest, for the next one
    /// after the tenant that was served last.
    pub(crate) fn choose(mut self, mut waiting: Vec<Candidate>) -> Chosen {
        waiting.sort_by_key(Candidate::order);
        let mut tenants: BTreeMap<Tenant, VecDeque<Candidate>> = BTreeMap::new();
        for run in waiting {
            tenants.entry(run.tenant.clone()).or_default().push_back(run);
        }
        let (mut runs, left) = (Vec::new(), self.left());
        loop {
            for queued in tenants.values_mut() {
                while queued
                    .front()
                    .and_then(|run| run.key.as_ref().map(|key| self.is_full(&run.tenant, key)))
                    == Some(true)
                {
                    queued.pop_front();
                }
            }
            tenants.retain(|tenant, queued| !queued.is_empty() && self.has_room(tenant));
            let turn = |tenant: &Tenant| {
                let taken = self.tenants.get(tenant).copied().unwrap_or(0);
                (taken, self.bucket.served.as_deref().is_some_and(|served| tenant.as_str() <= served))
            };
            let next = tenants.keys().min_by_key(|tenant| turn(tenant)).cloned();
            let Some(tenant) = next else { return self.chosen(runs, false) };
            if u32::try_from(runs.len()).is_ok_and(|begun| begun >= left) {
                return self.chosen(runs, true);
            }
            let Some(run) = tenants.get_mut(&tenant).and_then(VecDeque::pop_front) else { continue };
            *self.tenants.entry(tenant.clone()).or_default() += 1;
            if let Some(key) = run.key {
                *self.keys.entry((tenant.clone(), key)).or_default() += 1;
            }
            self.bucket.served = Some(tenant.as_str().to_owned());
            runs.push((tenant, run.id));
        }
    }

    /// Builds the result. `waiting` is true if more runs would begin with more room.
    fn chosen(self, runs: Vec<(Tenant, RunId)>, waiting: bool) -> Chosen {
        let mut bucket = self.bucket;
        let begun = u32::try_from(runs.len()).unwrap_or(u32::MAX);
        bucket.due_at = None;
        if self.admission.queue.rate.is_none() && begun > 0 {
            bucket.spent_until = Timestamp(bucket.spent_until.0.saturating_add(1));
        }
        if let Some(rate) = self.admission.queue.rate {
            bucket.spent_until = rate.spend(bucket.spent_until, self.admission.at, begun);
            // A run that waits for anything else is woken when that arrives.
            let only_a_token = self.tokens == Some(begun) && self.places > begun;
            bucket.due_at = (waiting && only_a_token).then(|| rate.next(bucket.spent_until));
        }
        Chosen { runs, bucket }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn waits(id: i64, of: &str, key: Option<&str>, priority: i32) -> Candidate {
        let key = key.map(str::to_owned);
        Candidate { id: RunId(id), tenant: tenant(of), key, priority, created_at: Timestamp(id) }
    }

    fn ask(queue: Queue, at: i64) -> Admission {
        Admission { queue, at: Timestamp(at), most: 64, known: None }
    }

    fn begun(admission: &Admission, bucket: Bucket, taken: Vec<Taken>, waiting: Vec<Candidate>) -> Vec<i64> {
        let chosen = Room::of(admission, bucket, taken).choose(waiting);
        chosen.runs.iter().map(|(_, id)| id.0).collect()
    }

    fn taken(of: &str, key: Option<&str>, by_all: u32) -> Taken {
        Taken { tenant: tenant(of), key: key.map(str::to_owned), by_all, by_own: by_all }
    }

    #[test]
    fn tenants_take_turns_and_who_has_fewer_goes_first() {
        let many = || {
            (0..20)
                .map(|id| waits(id, "a", None, 0))
                .chain([waits(100, "b", None, 0), waits(101, "c", None, 0)])
        };
        let four = ask(Queue::new("q").concurrency(4), 0);
        assert_eq!(begun(&four, Bucket::default(), vec![], many().collect()), [0, 100, 101, 1]);
        let six = ask(Queue::new("q").concurrency(6), 0);
        let busy = vec![taken("b", None, 3)];
        assert_eq!(begun(&six, Bucket::default(), busy, many().collect()), [0, 101, 1], "b has its share");

        // With one place, the tenant that was served last goes to the end.
        let one = ask(Queue::new("q").concurrency(1), 0);
        let mut bucket = Bucket::default();
        let (mut left, mut order): (Vec<_>, Vec<_>) = (many().collect(), vec![]);
        for _ in 0..4 {
            let chosen = Room::of(&one, bucket, vec![]).choose(left.clone());
            order.push(chosen.runs[0].1.0);
            left.retain(|run| run.id != chosen.runs[0].1);
            bucket = chosen.bucket;
        }
        assert_eq!(order, [0, 100, 101, 1]);
    }

    #[test]
    fn priority_comes_before_age_within_a_tenant() {
        let ask = ask(Queue::new("q").concurrency(3), 0);
        let waiting = vec![
            waits(1, "a", None, 0),
            waits(2, "a", None, 5),
            waits(3, "a", None, 0),
            waits(4, "a", None, -1),
        ];
        assert_eq!(begun(&ask, Bucket::default(), vec![], waiting), [2, 1, 3]);
    }

    #[test]
    fn a_key_that_is_full_is_passed_over() {
        let ask = ask(Queue::new("q").per_key(1), 0);
        let waiting = || {
            vec![
                waits(1, "a", Some("x"), 0),
                waits(2, "a", Some("x"), 0),
                waits(3, "a", Some("y"), 0),
                waits(4, "a", None, 0),
                waits(5, "a", None, 0),
                waits(6, "b", Some("x"), 0),
            ]
        };
        let mut all = begun(&ask, Bucket::default(), vec![], waiting());
        all.sort_unstable();
        assert_eq!(all, [1, 3, 4, 5, 6], "another tenant's key is another key");
        let room = Room::of(&ask, Bucket::default(), vec![taken("a", Some("x"), 1)]);
        assert_eq!(room.full_keys(), [(&tenant("a"), "x")]);
    }

    #[test]
    fn limits_per_tenant_and_per_worker_hold() {
        let tenant_limit = ask(Queue::new("q").per_tenant(2), 0);
        let waiting = |n: i64| (0..n).map(|id| waits(id, "a", None, 0)).collect::<Vec<_>>();
        assert_eq!(begun(&tenant_limit, Bucket::default(), vec![taken("a", None, 1)], waiting(5)), [0]);
        let worker_limit = ask(Queue::new("q").per_worker(2), 0);
        let others = Taken { by_own: 0, ..taken("a", None, 7) };
        assert_eq!(begun(&worker_limit, Bucket::default(), vec![others], waiting(5)), [0, 1]);
    }

    #[test]
    fn the_bucket_is_refilled_evenly_and_says_when() {
        let queue = Queue::new("q").rate(4, Duration::from_secs(4)).burst(2);
        let waiting = || (0..9).map(|id| waits(id, "a", None, 0)).collect::<Vec<_>>();
        let at = |seconds: i64| ask(queue.clone(), seconds * 1_000_000);
        let first = Room::of(&at(100), Bucket::default(), vec![]).choose(waiting());
        assert_eq!((first.runs.len(), first.bucket.due_at), (2, Some(Timestamp(101_000_000))));
        let (now, before) = (at(100), at(50));
        let early = Room::of(&now, first.bucket.clone(), vec![]);
        assert_eq!(early.left(), 0);
        assert_eq!(early.nothing(true).bucket, Bucket { served: Some("a".into()), ..first.bucket.clone() });
        let second = Room::of(&at(101), first.bucket, vec![]).choose(waiting());
        assert_eq!((second.runs.len(), second.bucket.due_at), (1, Some(Timestamp(102_000_000))));
        let behind = Room::of(&before, second.bucket.clone(), vec![]);
        assert_eq!(behind.left(), 0, "a clock that is behind lends nothing");
        let long_after = Room::of(&at(1000), second.bucket, vec![]).choose(waiting());
        assert_eq!(long_after.runs.len(), 2, "it does not overflow");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn the_choice_of_one_tenant_and_then_of_the_next_is_the_choice_of_all() {
        for queue in [Queue::new("q").concurrency(5), Queue::new("q").rate(5, Duration::from_secs(5))] {
            let ask = ask(queue, 100_000_000);
            let mut left: Vec<_> = (0..9)
                .map(|id| waits(id, ["a", "b", "c"][usize::try_from(id).unwrap() % 3], None, 0))
                .collect();
            let whole = Room::of(&ask, Bucket::default(), vec![]).choose(left.clone());
            let (mut bucket, mut places, mut seen) = (Bucket::default(), Vec::new(), Vec::new());
            loop {
                let chosen = Room::of(&ask, bucket.clone(), places.clone()).choose(left.clone());
                let chosen = chosen.first_tenant(&ask, &bucket);
                let Some((of, _)) = chosen.runs.first() else { break };
                assert!(chosen.runs.iter().all(|(tenant, _)| tenant == of));
                assert!(chosen.bucket.spent_until > bucket.spent_until, "it tells of each admission");
                places.push(taken(of.as_str(), None, u32::try_from(chosen.runs.len()).unwrap()));
                left.retain(|run| !chosen.runs.iter().any(|(_, id)| *id == run.id));
                seen.extend(chosen.runs.iter().map(|(_, id)| id.0));
                bucket = chosen.bucket;
            }
            let mut all: Vec<_> = whole.runs.iter().map(|(_, id)| id.0).collect();
            all.sort_unstable();
            seen.sort_unstable();
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        assert!(Queue::new("mail").concurrency(1).check().is_ok());
        assert!(Queue::new("").check().is_err());
        assert!(Queue::new("mail").per_key(0).check().is_err());
        assert!(Queue::new("mail").rate(0, Duration::from_secs(1)).check().is_err());
        assert!(Queue::new("mail").burst(3).check().is_err(), "a burst of no rate");
    }
}

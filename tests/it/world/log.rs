//! What the crate logs, as a test reads it.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, span};

/// Hears the events of the crate that it is to hear.
pub struct Listener<E> {
    pub enabled: fn(&Metadata<'_>) -> bool,
    pub event: E,
}

impl<E: Fn(&Event<'_>) + 'static> Subscriber for Listener<E>
where
    Self: Send + Sync,
{
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("counterfoil") && (self.enabled)(metadata)
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        (self.event)(event);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// One event.
#[derive(Clone)]
pub struct Line {
    pub level: Level,
    pub message: String,
    /// The other fields in their order.
    pub fields: Vec<(&'static str, String)>,
}

impl Line {
    fn of(event: &Event<'_>) -> Self {
        let mut line = Self { level: *event.metadata().level(), message: String::new(), fields: Vec::new() };
        event.record(&mut line);
        line
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.level, self.message)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// The events that were logged where this log listens.
#[derive(Clone)]
pub struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    dispatch: Dispatch,
    /// While there is one subscriber alone, a thread of another test that has none, and comes to an event first, decides that
    /// nobody hears it (tracing-core 0.1, `callsite::dispatchers`).
    _second: Dispatch,
}

impl Default for Log {
    fn default() -> Self {
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let kept = lines.clone();
        let event = move |event: &Event<'_>| kept.lock().unwrap().push(Line::of(event));
        let second = Listener { enabled: |_| true, event: |_: &Event<'_>| {} };
        Self {
            lines,
            dispatch: Dispatch::new(Listener { enabled: |_| true, event }),
            _second: Dispatch::new(second),
        }
    }
}

impl Log {
    /// Listens on this thread while the guard lives.
    pub fn listen(&self) -> DefaultGuard {
        tracing::dispatcher::set_default(&self.dispatch)
    }

    /// All events so far, except those of level `trace`.
    pub fn lines(&self) -> Vec<Line> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.level <= Level::DEBUG).cloned().collect()
    }

    /// The events with a value in this field, each as text; with names in place of ids that each run of the test draws anew.
    pub fn about(&self, field: &str, names: &[(&str, &str)]) -> Vec<String> {
        let lines = self.lines();
        let about = lines.iter().filter(|line| line.field(field).is_some());
        about
            .map(|line| names.iter().fold(line.to_string(), |line, (id, name)| line.replace(id, name)))
            .collect()
    }

    /// How often each message of this level or a more severe one was logged.
    pub fn counts(&self, level: Level) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines().into_iter().filter(|line| line.level <= level) {
            *counts.entry(line.message).or_default() += 1;
        }
        counts
    }
}

//! The stream itself: it looks, tells what has changed, and gives up on readers that do not read.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use super::look::{Event, Look, Subject};
use crate::exec::Core;
use crate::flow::TenantClient;
use crate::payload::DigestKey;
use crate::rim::api::{Caller, Failed, Shared};

/// The shortest pause between two looks.
const POLL: Duration = Duration::from_millis(500);
/// A pause is at least so many times as long as the look before it: however much there is to read, a stream uses a small share
/// of a connection to the database.
const SHARE: u32 = 20;
/// The time without events after which a comment is sent, so that nobody between takes the connection for dead. The caller's
/// token is checked as often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The time in which a reader must take what is sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// The length of a stream. The client resumes it; a server that is told to end does not wait for longer.
const LIFE: Duration = Duration::from_mins(10);
/// The greatest number of streams of a caller, and of all callers, in this process.
const OF_CALLER: usize = 16;
const OF_ALL: usize = 1024;

/// The streams of this process.
#[derive(Debug, Default)]
pub(in crate::rim) struct Streams {
    of_callers: Mutex<HashMap<Caller, usize>>,
    /// Cancelled when the server is told to end.
    pub(in crate::rim) over: CancellationToken,
}

impl Streams {
    fn of_callers(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        self.of_callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more stream of a caller, if the caller may have one more.
    fn enter(self: &Arc<Self>, caller: &Caller) -> Result<Place, Failed> {
        let mut all = self.of_callers();
        let is_full =
            all.values().sum::<usize>() >= OF_ALL || all.get(caller).is_some_and(|own| *own >= OF_CALLER);
        if is_full {
            return Err(Failed::too_many(HEARTBEAT));
        }
        *all.entry(caller.clone()).or_default() += 1;
        Ok(Place { streams: self.clone(), caller: caller.clone() })
    }
}

/// The place of a stream among the others.
struct Place {
    streams: Arc<Streams>,
    caller: Caller,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.streams.of_callers();
        if let Some(own) = all.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.caller);
            }
        }
    }
}

/// A stream that a caller wants.
pub(in crate::rim) struct Watch {
    pub(in crate::rim) client: TenantClient,
    pub(in crate::rim) shared: Arc<Shared>,
    pub(in crate::rim) caller: Caller,
    /// The request, by which the caller is authenticated again while the stream is open.
    pub(in crate::rim) request: Parts,
    pub(in crate::rim) subject: Subject,
}

impl Watch {
    /// Begins the stream behind the request's `Last-Event-ID`, or with what there is now.
    pub(in crate::rim) async fn begin(self) -> Result<Response, Failed> {
        let place = self.shared.streams.enter(&self.caller)?;
        let (core, tenant) = self.client.core();
        let key = core.tenant_key(&tenant).await?;
        let cursor = self.cursor(&key)?;
        let (at, look) = (core.now(), Look::at(&self.client, self.subject, None).await?);
        let first = match &cursor {
            Some(cursor) => look.since_cursor(cursor, &self.client).await?,
            None => look.since(&Look::default(), &self.client).await?,
        };
        if cursor.is_some() && first.is_empty() && look.is_over(self.subject) {
            return Ok(StatusCode::NO_CONTENT.into_response()); // by which a browser knows that nothing comes any more
        }
        let (sender, receiver) = mpsc::channel(8);
        let place_in_stream = look.cursor(at).text(self.subject, &key);
        let begun = written(&first, &place_in_stream, "open");
        let teller = Teller { watch: self, core: core.clone(), key, sender };
        core.tracker.spawn(teller.tell(begun, look));
        // The body holds the place: a reader that does not read has its connection after the teller has given up.
        let read = |(mut receiver, place): (mpsc::Receiver<Bytes>, Place)| async move {
            let chunk = receiver.recv().await?;
            Some((Ok::<_, Infallible>(chunk), (receiver, place)))
        };
        let chunks = futures_util::stream::unfold((receiver, place), read);
        let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
        Ok((headers, [("x-accel-buffering", "no")], Body::from_stream(chunks)).into_response())
    }

    fn cursor(&self, key: &DigestKey) -> Result<Option<Cursor>, Failed> {
        let Some(last) = self.request.headers.get("last-event-id").filter(|last| !last.is_empty()) else {
            return Ok(None);
        };
        let forged = || Failed::malformed("The Last-Event-ID is none of this stream. Begin without one.");
        let read = last.to_str().ok().and_then(|last| Cursor::read(last, self.subject, key));
        read.map(Some).ok_or_else(forged)
    }

    /// True if the caller may still read the stream.
    async fn is_allowed(&self) -> bool {
        let caller = self.shared.auth.caller(&self.request).await;
        caller.is_ok_and(|caller| caller.as_ref() == Some(&self.caller))
    }
}

/// The task behind a stream.
struct Teller {
    watch: Watch,
    core: Arc<Core>,
    key: DigestKey,
    sender: mpsc::Sender<Bytes>,
}

impl Teller {
    async fn tell(self, first: String, mut before: Look) {
        let clock = self.core.clock.clone();
        let (began, mut told, mut listed) = (clock.boot(), clock.boot(), clock.boot());
        let mut pause = POLL;
        if !self.send(first).await {
            return;
        }
        while began.until(clock.boot()) < LIFE && !self.core.is_closing() {
            tokio::select! {
                biased;
                () = self.watch.shared.streams.over.cancelled() => return,
                () = self.sender.closed() => return,
                () = clock.sleep(pause) => {}
            }
            let Watch { client, subject, .. } = &self.watch;
            let (at, looked) = (self.core.now(), clock.boot());
            let Ok(look) = Look::at(client, *subject, Some(&before)).await else { return };
            pause = looked.until(clock.boot()).saturating_mul(SHARE).clamp(POLL, HEARTBEAT);
            let Ok(mut events) = look.since(&before, client).await else { return };
            // What one look does not read changes without an event.
            if look.is_cut() && listed.until(clock.boot()) >= HEARTBEAT {
                events.push(Event::gap());
                listed = clock.boot();
            }
            let is_over = look.is_over(*subject);
            let text = if !events.is_empty() {
                written(&events, &look.cursor(at).text(*subject, &self.key), "seen")
            } else if told.until(clock.boot()) >= HEARTBEAT {
                ": still here\n\n".to_owned()
            } else {
                before = look;
                continue;
            };
            if !self.watch.is_allowed().await || !self.send(text).await || is_over {
                return;
            }
            (before, told) = (look, clock.boot());
        }
    }

    /// Sends a text. Returns false if the reader is gone, or does not take it in time.
    async fn send(&self, text: String) -> bool {
        tokio::select! {
            biased;
            sent = self.sender.send(text.into()) => sent.is_ok(),
            () = self.core.clock.sleep(PATIENCE) => false,
        }
    }
}

/// Events as text, and behind them the event that carries the cursor: whoever has read it has read all of them.
fn written(events: &[Event], cursor: &str, last: &str) -> String {
    let mut text = String::new();
    for Event { kind, data } in events {
        let _ = write!(text, "event: {kind}\ndata: {data}\n\n"); // into a string: this cannot fail
    }
    let _ = write!(text, "id: {cursor}\nevent: {last}\ndata: {{}}\n\n");
    text
}

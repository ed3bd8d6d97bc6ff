//! The filter of a list of runs: the same words in every place where an operator lists them.

use serde::Deserialize;

use crate::flow::{RunState, RunStatus};

/// The runs to be listed. Times are compared as RFC 3339 texts in UTC, of which a beginning is enough: `2026-11-26`.
#[derive(Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub(super) struct RunFilter {
    /// Only runs in this state, such as waiting or blocked
    #[cfg_attr(feature = "cli", arg(long, value_parser = state))]
    state: Option<String>,
    /// Only runs of this workflow
    #[cfg_attr(feature = "cli", arg(long))]
    workflow: Option<String>,
    /// Only runs whose start key begins so
    #[cfg_attr(feature = "cli", arg(long))]
    key: Option<String>,
    /// Only runs that were started at this time (UTC) or later: `2026-11-26T09:30` or a beginning of it
    #[cfg_attr(feature = "cli", arg(long, value_parser = time))]
    since: Option<String>,
    /// Only runs that were started before this time (UTC)
    #[cfg_attr(feature = "cli", arg(long, value_parser = time))]
    before: Option<String>,
}

fn state(text: &str) -> Result<String, String> {
    let is_state = RunState::NAMES.contains(&text);
    is_state
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no state of a run: {:?}", RunState::NAMES))
}

fn time(text: &str) -> Result<String, String> {
    let is_time = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte));
    is_time
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no time in UTC, 2026-11-26T09:30:00Z"))
}

impl RunFilter {
    /// Refuses a state that no run has, and a text that is no time.
    #[cfg(feature = "api")]
    pub(super) fn check(&self) -> Result<(), String> {
        self.state.as_deref().map_or(Ok(String::new()), state)?;
        [&self.since, &self.before].into_iter().flatten().try_for_each(|text| time(text).map(drop))
    }

    /// True if the list has this run.
    pub(super) fn takes(&self, run: &RunStatus) -> bool {
        let started = run.started_at.to_string();
        self.state.as_deref().is_none_or(|state| run.state.name() == state)
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow == *workflow)
            && self.key.as_deref().is_none_or(|key| run.key.as_deref().unwrap_or_default().starts_with(key))
            && self.since.as_ref().is_none_or(|since| started >= *since)
            && self.before.as_ref().is_none_or(|before| started < *before)
    }
}

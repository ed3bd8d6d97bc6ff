//! The tools: lookups.

mod lookup;

//! The lookups, each against a server of its own.

mod file;
mod http;
mod object;
mod rows;
mod stream;
mod world;

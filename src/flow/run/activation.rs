//! An activation together with the engine that carries it out.

use std::sync::Arc;

use crate::flow::inner::Inner;
use crate::flow::live::Live;

/// An activation together with the engine that carries it out. Its ends are methods: `finish`, `undo`, `pause`,
/// `cancel`.
#[derive(Clone, Copy)]
pub(in crate::flow) struct Activation<'a> {
    pub(in crate::flow) engine: &'a Arc<Inner>,
    pub(in crate::flow) live: &'a Arc<Live>,
}

//! A script: what the next calls do, and what every call after that does.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::memory::lock;

/// Actions for calls to come, in order. An empty script answers with its default.
#[derive(Debug)]
pub struct Script<A> {
    next: Mutex<VecDeque<A>>,
    always: Mutex<Option<A>>,
}

impl<A> Default for Script<A> {
    fn default() -> Script<A> {
        Script { next: Mutex::default(), always: Mutex::default() }
    }
}

impl<A: Clone> Script<A> {
    /// Adds actions for the next calls, one each.
    pub fn then(&self, actions: impl IntoIterator<Item = A>) {
        lock(&self.next).extend(actions);
    }

    /// Sets what every call does once the script is empty; `None` lets calls pass.
    pub fn always(&self, action: Option<A>) {
        *lock(&self.always) = action;
    }

    /// How many actions were not played yet.
    pub fn left(&self) -> usize {
        lock(&self.next).len()
    }

    pub(super) fn play(&self) -> Option<A> {
        let next = lock(&self.next).pop_front();
        next.or_else(|| lock(&self.always).clone())
    }
}

//! What a handler under a claim has in its hand: the signal to stop, and the steps.
//!
//! Invariant: no effect is started unless the claim stands.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::{ClaimLease, Error, ErrorKind, Result, planted, reach};

use crate::leased::heartbeat::Standing;
use crate::signal::Listener;

/// A handler's claim, while it works. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub(crate) standing: Arc<Standing>,
    /// The engine's own signal, where the handler is run by a consumer.
    pub(crate) stop: Option<Listener>,
}

impl Context {
    /// Returns when the handler must stop: the lease was lost, or the consumer stops.
    pub async fn cancelled(&self) {
        let mut lost = self.standing.lost.listener();
        match self.stop.clone() {
            None => lost.given().await,
            Some(mut stop) => tokio::select! {
                biased;
                () = lost.given() => {}
                () = stop.given() => {}
            },
        }
    }

    /// Whether the handler must stop.
    pub fn is_cancelled(&self) -> bool {
        !self.standing.stands() || self.stop.as_ref().is_some_and(Listener::is_given)
    }

    /// The claim.
    pub fn lease(&self) -> &ClaimLease {
        &self.standing.lease
    }

    /// Makes an effect outside the database, or returns the result that it had.
    ///
    /// The effect is called with an idempotency key that is the same at every attempt, so that a
    /// provider that honours such keys makes it once even if this process dies after the effect and
    /// before its result is stored. A result that is stored is never asked for again.
    ///
    /// ```no_run
    /// # use postrider_core::Result;
    /// # use postrider_inbox::{Context, Outcome};
    /// # async fn charge(key: String) -> std::result::Result<&'static str, std::io::Error> { Ok("ok") }
    /// # async fn example(context: Context) -> Result<Outcome> {
    /// let receipt = context.step("charge", |key| async { charge(key).await }).await?;
    /// Ok(Outcome::Ack(receipt))
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`] if the lease was lost: the effect was not made, or somebody else
    /// resumes with the same key. [`ErrorKind::TooLarge`] for a result above [`RESULT_BYTES_MAX`]: the effect
    /// was made, that is recorded, and every later attempt gets the same error instead of making it again.
    /// Otherwise what the effect or the store said; an effect's error that is not an [`Error`]
    /// becomes [`ErrorKind::Unavailable`].
    pub async fn step<F, R, T, E>(&self, name: &str, effect: F) -> Result<Bytes>
    where
        F: FnOnce(String) -> R,
        R: Future<Output = Result<T, E>>,
        T: Into<Bytes>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let standing = &*self.standing;
        standing.check("step")?;
        let (store, lease) = (&standing.store, &standing.lease);
        let stored = standing.ask("step", || store.step(lease, name)).await?;
        if let Some(result) = stored.filter(|_| !planted!(StepNotResumed)) {
            reach!(StepResumed);
            return match LeftOut::read(&result) {
                None => Ok(result),
                Some(left_out) => Err(too_large(name, left_out)),
            };
        }
        standing.check("step")?;
        let mut key = lease.key.step_key(name);
        if planted!(StepKeyPerAttempt) {
            // The bug: another key at every attempt makes another effect at every attempt.
            key = format!("{key}:{}", lease.token);
        }
        if planted!(StepRecordedFirst) {
            // The bug: what is recorded before it was done is not done after a crash.
            standing.ask("complete step", || store.complete_step(lease, name, &[])).await?;
        }
        reach!(StepBegun);
        let result = effect(key).await.map_err(|e| failed(name, e.into()))?;
        let result: Bytes = result.into();
        let left_out = LeftOut::instead_of(&result);
        let kept = left_out.map_or_else(|| result.clone(), LeftOut::to_bytes);
        standing.ask("complete step", || store.complete_step(lease, name, &kept)).await?;
        reach!(StepDone);
        match left_out {
            None => Ok(result),
            Some(left_out) => Err(too_large(name, left_out)),
        }
    }
}

/// That a step was made, and its result is not kept.
fn too_large(name: &str, left_out: LeftOut) -> Error {
    Error::new(ErrorKind::TooLarge, "step").message(format!(
        "the step `{}` was made, and its result of {} bytes is not kept, because the limit is {RESULT_BYTES_MAX}; \
         it is not made again: return an address of what is large, and settle this event by hand",
        name.escape_debug(),
        left_out.bytes
    ))
}

fn failed(name: &str, cause: Box<dyn StdError + Send + Sync>) -> Error {
    match cause.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => Error::new(ErrorKind::Unavailable, "step")
            .message(format!("step `{}` failed: {cause}", name.escape_debug()))
            .source(cause),
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("lease", &self.standing.lease)
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

//! Webhooks: a relay, a partner that receives, and producers, each a process of its own that is killed
//! and started again, judged per endpoint by what the partner's own record says.

mod answers;
mod control;
mod evidence;
mod kills;
mod many;
mod town;

//! What operators change: requests, definitions, erasure, repairs, and the inbox; and the doctor.

mod carry_out;
mod definitions;
mod doctor;
mod erase;
mod examined;
pub(crate) mod floors;
mod forget;
mod held;
mod inbox;
mod recount;
mod repair;
mod request;
mod still;

/// The rows of an audit, to be compared.
fn told(audit: &[(String, String)]) -> Vec<(&str, &str)> {
    audit.iter().map(|(what, subject)| (what.as_str(), subject.as_str())).collect()
}

//! Who can reach the metrics, and where traces go.

use crate::config::Config;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let observe = &config.observe;
    let at = |name: &str| Path::of("observe").key(name);
    if let (Some(listen), None) = (observe.listen, &observe.token)
        && !listen.ip().is_loopback()
    {
        let message = format!("{listen} can be reached by other machines, and there is no token");
        let advice = "write token = \"env:NAME\" or \"file:PATH\", or listen on 127.0.0.1";
        reading.contradict(&[at("listen"), at("token")], Complaint::new(message, advice));
    }
    super::require_http(&at("otlp"), observe.otlp.as_ref(), reading);
}

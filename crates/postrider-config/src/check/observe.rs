//! Who can reach the metrics, and where traces go.

use crate::config::Config;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let observe = &config.observe;
    let at = |name: &str| Path::of("observe").key(name);
    let sidecars = config.consume.iter().map(|(name, consumer)| {
        (consumer.listen, Path::of("consume").key(name.as_str()).key("listen"))
    });
    for (listen, path) in std::iter::once((observe.listen, at("listen"))).chain(sidecars) {
        if let (Some(listen), None) = (listen, &observe.token)
            && !listen.ip().is_loopback()
        {
            let message =
                format!("{listen} can be reached by other machines, and there is no token");
            let advice =
                "write observe.token = \"env:NAME\" or \"file:PATH\", or listen on 127.0.0.1";
            reading.contradict(&[path, at("token")], Complaint::new(message, advice));
        }
    }
    super::require_http(&at("otlp"), observe.otlp.as_ref(), reading);
}

//! The part of a relay whose events go out as webhooks: the engine that everybody uses, an endpoint
//! for each tenant.

use std::process::ExitCode;
use std::sync::Arc;

use postrider_core::Result;
use postrider_e2e::{SECRET, partners, tenant};
use postrider_sqlite::SqliteStore;
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};

use crate::args::{Args, config};
use crate::asked::Asked;
use crate::halt::Halt;
use crate::relay;

pub(crate) async fn run(args: &Args, halt: Arc<Halt>, asked: Asked) -> Result<ExitCode> {
    let source = Arc::new(SqliteStore::new(&args.files()?.shop)?);
    let broker = Arc::new(WebhookBroker::new(&settings(args)?)?);
    relay::play(source, partners()?, broker, args, halt, asked).await
}

fn settings(args: &Args) -> Result<WebhookSettings> {
    let to = args.text("to").ok_or_else(|| config("--to is missing".to_owned()))?;
    // One endpoint may be elsewhere: `--away tenant-7=ADDRESS`.
    let away = args.text("away").and_then(|text| text.split_once('='));
    let mut settings = WebhookSettings {
        allow_private: true,
        connections: args.number("connections", 64)?,
        connections_per_endpoint: args.number("per-endpoint", 8)?,
        // At most the publish deadline, which is a third of the lease.
        deadline: args.millis("deadline-ms", 300)?,
        ..WebhookSettings::default()
    };
    for number in 0..args.number("tenants", 1)? {
        let name = tenant(number);
        let address = match away {
            Some((other, address)) if other == name => address,
            _ => to,
        };
        let endpoint = Endpoint::new(format!("http://{address}/{name}")).key(SECRET.parse()?);
        settings = settings.endpoint(&name, endpoint);
    }
    Ok(settings)
}

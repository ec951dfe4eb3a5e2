//! Runs the monolith in a folder, and places an order a second until it is interrupted.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use example_modular_monolith::Monolith;
use example_modular_monolith::orders::{OrderPlaced, place};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let monolith = Monolith::start(&folder).await?;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let first = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs() as i64;
    for order_id in first.. {
        tokio::select! {
            _ = seconds.tick() => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        place(&folder.join("monolith.db"), &OrderPlaced { order_id, total_cents: 1250 })?;
        println!("placed order {order_id}");
    }
    monolith.stop().await;
    Ok(())
}

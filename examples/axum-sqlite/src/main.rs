//! The service: `example-axum-sqlite FOLDER`, on port 3000 of this machine.

use std::error::Error;
use std::path::PathBuf;

use example_axum_sqlite::{Shop, router};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let (shop, relay) = Shop::open(&folder).await?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let interrupted = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, router(shop)).with_graceful_shutdown(interrupted).await?;
    // What is under way is finished; what is not, the next start delivers.
    relay.drain();
    relay.stopped().await;
    Ok(())
}

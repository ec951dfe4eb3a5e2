//! Places orders, lets each of them be told twice, and looks at what was charged.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::time::{Duration, Instant};

use example_aws_orders::{Failure, Shop};

const ORDERS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let address = |name: &str| {
        std::env::var(name)
            .map_err(|_| format!("{name} names no server; run `cargo x example aws-orders`"))
    };
    let shop = Shop::open(&address("POSTRIDER_DDB_URL")?, &address("POSTRIDER_AWS_URL")?).await?;
    let told = run(&shop).await;
    let closed = shop.close().await;
    told?;
    closed
}

async fn run(shop: &Shop) -> Result<(), Failure> {
    println!(
        "orders and events in DynamoDB, a relay to EventBridge, two rules to one queue, two workers"
    );
    for number in 1..=ORDERS {
        shop.orders.place(&format!("o-{number}"), 1_250).await?;
    }
    println!("placed {ORDERS} orders, each with its event in one transaction");
    let refused = shop.orders.place("o-1", 1).await;
    println!("placed o-1 again: {}", refused.err().ok_or("an order was placed twice")?);

    let began = Instant::now();
    while shop.messages().0 + shop.messages().1 < 2 * ORDERS {
        if began.elapsed() > PATIENCE {
            return Err(format!("only {:?} messages came", shop.messages()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // waits: for messages of a queue
    }
    let (done, copies) = shop.messages();
    println!(
        "two workers heard {} messages: acted on {done}, knew {copies} for copies",
        done + copies
    );
    let (placed, charges) = (shop.orders.all().await?, shop.provider.charges());
    if charges.len() != placed.len() || charges.values().any(|count| *count != 1) {
        return Err(format!("charged otherwise than once each: {charges:?}").into());
    }
    println!("charged {} orders once each", charges.len());
    Ok(())
}

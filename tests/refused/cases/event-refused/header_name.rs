//! Headers travel as those of HTTP, Kafka, and NATS, and some names are taken.
use postrider::Event;

#[derive(serde::Serialize, Event)]
#[event(type = "order.placed")]
struct OrderPlaced {
    #[event(id)]
    order_id: u64,
    #[event(header = "Correlation-Id")]
    request: String,
    #[event(header = "postrider-late")]
    late: String,
    #[event(header)]
    unnamed: String,
    #[event(tenant = "shop")]
    shop: String,
}

fn main() {}

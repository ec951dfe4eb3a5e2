//! The shop: one route, one table, and the event in the transaction of the row.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use postrider::file::FileBroker;
use postrider::relay::{Relay, RelayHandle};
use postrider::sqlite::sqlx::enqueue;
use postrider::sqlite::{Outbox, SqliteStore, init};
use postrider::{Destination, DestinationId, Event, Route, TypedEvent};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Pool, Sqlite, SqlitePool};

const TABLES: &str = include_str!("../sql/tables.sql");
const INSERT_ORDER: &str = include_str!("../sql/insert_order.sql");

/// What the request handlers share.
#[derive(Clone)]
pub struct Shop {
    database: Pool<Sqlite>,
    outbox: Outbox,
}

/// What a customer sends.
#[derive(Clone, Debug, Deserialize)]
struct Order {
    id: i64,
    total_cents: i64,
}

/// What the world is told: a snapshot of the moment, not an id to ask about later.
#[derive(Debug, Serialize, Event)]
#[event(type = "order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    total_cents: i64,
}

/// The routes.
pub fn router(shop: Shop) -> Router {
    Router::new().route("/orders", post(place_order)).with_state(shop)
}

/// Writes the order and the event, and answers. Nothing is sent from here: the relay does that.
async fn place_order(
    State(shop): State<Shop>,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<serde_json::Value>), Problem> {
    let mut tx = shop.database.begin_with("begin immediate").await?;
    sqlx::query(INSERT_ORDER).bind(order.id).bind(order.total_cents).execute(&mut *tx).await?;
    let placed = OrderPlaced { order_id: order.id, total_cents: order.total_cents };
    let id = enqueue(&shop.outbox, &mut tx, &placed.to_event()?).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(serde_json::json!({ "order": order.id, "event": id }))))
}

impl Shop {
    /// Opens the shop in a folder, and starts the relay that tells of its orders.
    ///
    /// # Errors
    /// If the database cannot be opened, or the relay cannot start.
    pub async fn open(folder: &Path) -> Result<(Shop, RelayHandle), Box<dyn Error>> {
        let file = folder.join("shop.db");
        // Postrider's tables stand beside the application's own.
        init(&file)?;
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .synchronous(SqliteSynchronous::Full)
            .disable_statement_logging();
        let database = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(TABLES).execute(&database).await?;

        let broker = FileBroker::open(folder.join("events.ndjson"))?;
        let route = Route::all("{event_type}".parse()?);
        let destination = Destination::new(DestinationId::new("events")?, "file", vec![route]);
        let relay = Relay::builder(Arc::new(SqliteStore::new(&file)?))
            .destination(destination, Arc::new(broker))
            .start()
            .await?;
        Ok((Shop { database, outbox: Outbox::new() }, relay))
    }
}

/// What a customer is told when it did not work. The transaction was rolled back: no order, no event.
struct Problem(StatusCode, String);

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Problem {
        let exists = error.as_database_error().is_some_and(|e| e.is_unique_violation());
        let status = if exists { StatusCode::CONFLICT } else { StatusCode::INTERNAL_SERVER_ERROR };
        Problem(status, error.to_string())
    }
}

impl From<postrider::Error> for Problem {
    fn from(error: postrider::Error) -> Problem {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        (self.0, Json(serde_json::json!({ "problem": self.1 }))).into_response()
    }
}

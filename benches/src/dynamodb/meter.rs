//! A meter between a client of DynamoDB and the server: it counts calls, and asks the server what each cost.
//!
//! It stands at the HTTP boundary, so that it sees what is really sent by whoever is measured, and adds
//! `ReturnConsumedCapacity` to each request that may have it. Emulators do not look at signatures, so a changed
//! request is none the worse.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::Result;

/// Operations that say what they cost if they are asked, and whether they write.
const METERED: [(&str, bool); 12] = [
    ("BatchExecuteStatement", true),
    ("BatchGetItem", false),
    ("BatchWriteItem", true),
    ("DeleteItem", true),
    ("ExecuteStatement", true),
    ("GetItem", false),
    ("PutItem", true),
    ("Query", false),
    ("Scan", false),
    ("TransactGetItems", false),
    ("TransactWriteItems", true),
    ("UpdateItem", true),
];

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Reading {
    /// Calls by operation, refused ones included.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Calls that were answered with an error, by operation and error.
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) read_units: f64,
    pub(crate) write_units: f64,
}

impl Reading {
    /// Reads and writes together.
    pub(crate) fn units(&self) -> f64 {
        self.read_units + self.write_units
    }

    pub(crate) fn all_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    fn add(&mut self, operation: &str, status: StatusCode, answer: &Value) {
        *self.calls.entry(operation.to_owned()).or_default() += 1;
        if !status.is_success() {
            let error = answer["__type"].as_str().unwrap_or("unknown");
            let error = error.rsplit('#').next().unwrap_or(error);
            *self.refused.entry(format!("{operation}: {error}")).or_default() += 1;
        }
        let Some((_, writes)) = METERED.iter().find(|(name, _)| *name == operation) else { return };
        let consumed = &answer["ConsumedCapacity"];
        let one = std::slice::from_ref(consumed);
        let each = consumed.as_array().map_or(one, Vec::as_slice);
        let units: f64 = each.iter().filter_map(|table| table["CapacityUnits"].as_f64()).sum();
        *if *writes { &mut self.write_units } else { &mut self.read_units } += units;
    }
}

/// A running meter. It ends with the runtime.
#[derive(Clone)]
pub(crate) struct Meter {
    /// Where clients find it.
    pub(crate) url: String,
    server: Arc<str>,
    client: Client<HttpConnector, Full<Bytes>>,
    reading: Arc<Mutex<Reading>>,
}

impl Meter {
    /// Starts one before a server.
    pub(crate) async fn start(server: &str) -> Result<Meter> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut connector = HttpConnector::new();
        // As the clients of both contenders do.
        connector.set_nodelay(true);
        let meter = Meter {
            url: format!("http://{}", listener.local_addr()?),
            server: Arc::from(server.trim_end_matches('/')),
            client: Client::builder(TokioExecutor::new()).build(connector),
            reading: Arc::default(),
        };
        tokio::spawn(accept(listener, meter.clone()));
        Ok(meter)
    }

    /// What was counted since the last call.
    pub(crate) fn take(&self) -> Reading {
        std::mem::take(&mut self.reading.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let (mut head, body) = request.into_parts();
        let target = head.headers.get("x-amz-target").and_then(|value| value.to_str().ok());
        let operation = target.and_then(|text| text.rsplit('.').next()).unwrap_or("").to_owned();
        let body = asking(&operation, body.collect().await?.to_bytes())?;
        head.uri = format!("{}{}", self.server, head.uri).parse::<Uri>()?;
        head.headers.remove("content-length");
        head.headers.remove("host");
        let answer = self.client.request(Request::from_parts(head, Full::new(body))).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let answer = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.add(&operation, head.status, &answer);
        Ok(Response::from_parts(head, Full::new(body)))
    }
}

/// The request, asking what it costs.
fn asking(operation: &str, body: Bytes) -> Result<Bytes> {
    if !METERED.iter().any(|(name, _)| *name == operation) {
        return Ok(body);
    }
    let mut request: Value = serde_json::from_slice(&body)?;
    request["ReturnConsumedCapacity"] = "TOTAL".into();
    Ok(serde_json::to_vec(&request)?.into())
}

async fn accept(listener: TcpListener, meter: Meter) {
    while let Ok((stream, _)) = listener.accept().await {
        // Without it, answers wait for acknowledgements of the network.
        let _ = stream.set_nodelay(true);
        let meter = meter.clone();
        let service = service_fn(move |request| {
            let meter = meter.clone();
            async move {
                Ok::<_, Infallible>(meter.pass(request).await.unwrap_or_else(|error| {
                    let mut response = Response::new(Full::from(error.to_string()));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response
                }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn units_are_summed_by_reads_and_writes_and_refusals_are_named() {
        let mut reading = Reading::default();
        let two = json!({"ConsumedCapacity": [{"CapacityUnits": 4.0}, {"CapacityUnits": 2.0}]});
        reading.add("TransactWriteItems", StatusCode::OK, &two);
        reading.add("Query", StatusCode::OK, &json!({"ConsumedCapacity": {"CapacityUnits": 0.5}}));
        let refused =
            json!({"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"});
        reading.add("UpdateItem", StatusCode::BAD_REQUEST, &refused);
        reading.add("GetRecords", StatusCode::OK, &json!({}));
        assert_eq!((reading.write_units, reading.read_units), (6.0, 0.5));
        assert_eq!(reading.all_calls(), 4);
        assert_eq!(reading.refused["UpdateItem: ConditionalCheckFailedException"], 1);
    }

    #[test]
    fn only_what_has_a_price_is_asked_for_it() {
        let asked = asking("PutItem", Bytes::from_static(b"{}")).unwrap();
        assert_eq!(asked, r#"{"ReturnConsumedCapacity":"TOTAL"}"#);
        assert_eq!(asking("GetRecords", Bytes::from_static(b"{}")).unwrap(), "{}");
        assert!(asking("PutItem", Bytes::from_static(b"no json")).is_err());
    }
}

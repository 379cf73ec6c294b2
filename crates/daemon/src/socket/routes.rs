//! The paths of the API and their handlers.

use std::time::{Duration, Instant};

use api::event::Event;
use api::messages::{EVENTS_PATH, ErrorBody, MAX_EVENT_BYTES, Resource};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use tokio::time::timeout;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use super::{ApiContext, Queries, QueryError};
use node_core::error::display_chain;
use node_core::metrics::{ByOutcome, ByRequest};

/// How long a query may take, waiting for its turn included.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Queries block threads that the rest of the daemon needs, too.
const MAX_QUERIES: usize = 2;
/// How long an event waits for room in the queue. The plugin waits 200 ms for the response.
const QUEUE_TIMEOUT: Duration = Duration::from_millis(150);

pub(super) fn router(context: ApiContext) -> Router {
    let path = Resource::path;
    Router::new()
        .route(&path(Resource::Status), get(status))
        .route(&path(Resource::Pods), get(pods))
        .route(&path(Resource::Leases), get(leases))
        .route(&path(Resource::Interfaces), get(interfaces))
        .route(&path(Resource::Routes), get(routes))
        .route(&path(Resource::PodCidr), get(pod_cidr))
        .route(&path(Resource::Conditions), get(conditions))
        .layer(GlobalConcurrencyLimitLayer::new(MAX_QUERIES))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            QUERY_TIMEOUT,
        ))
        .route(EVENTS_PATH, post(post_event))
        .layer(DefaultBodyLimit::max(MAX_EVENT_BYTES))
        .fallback(not_found)
        .with_state(context)
}

async fn status(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Status, |queries| Ok(queries.status())).await
}

async fn pods(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Pods, |queries| Ok(queries.pods())).await
}

async fn leases(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Leases, Queries::leases).await
}

async fn interfaces(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Interfaces, Queries::interfaces).await
}

async fn routes(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Routes, |_| Queries::routes()).await
}

async fn pod_cidr(State(context): State<ApiContext>) -> Response {
    query(context, Resource::PodCidr, |queries| Ok(queries.pod_cidr())).await
}

async fn conditions(State(context): State<ApiContext>) -> Response {
    query(context, Resource::Conditions, |queries| {
        Ok(queries.conditions())
    })
    .await
}

/// Runs a query on a blocking thread: some read the disk or ask the kernel.
async fn query<T: Serialize + Send + 'static>(
    context: ApiContext,
    resource: Resource,
    run: impl FnOnce(&Queries) -> Result<T, QueryError> + Send + 'static,
) -> Response {
    let started = Instant::now();
    let queries = context.queries.clone();
    let result = tokio::task::spawn_blocking(move || run(&queries)).await;
    let by = ByRequest {
        request: resource.to_string(),
    };
    let durations = context.metrics.request_duration.get_or_create(&by);
    durations.observe(started.elapsed().as_secs_f64());
    match result {
        Ok(Ok(value)) => Json(value).into_response(),
        Ok(Err(error)) => error_response(StatusCode::INTERNAL_SERVER_ERROR, display_chain(&error)),
        Err(error) => error_response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn post_event(State(context): State<ApiContext>, body: Bytes) -> Response {
    let count = |outcome: &str| {
        let outcome = outcome.to_owned();
        let events = &context.metrics.events;
        events.get_or_create(&ByOutcome { outcome }).inc();
    };
    let event: Box<Event> = match serde_json::from_slice(&body) {
        Ok(event) => event,
        Err(error) => {
            count("invalid");
            return error_response(StatusCode::BAD_REQUEST, format!("invalid event: {error}"));
        }
    };
    if let Ok(Ok(())) = timeout(QUEUE_TIMEOUT, context.events.send(event)).await {
        count("accepted");
        return StatusCode::NO_CONTENT.into_response();
    }
    // The queue is full, or the daemon shuts down.
    count("dropped");
    context.events_lost.notify_one();
    let error = "event queue is full".to_owned();
    error_response(StatusCode::SERVICE_UNAVAILABLE, error)
}

async fn not_found() -> Response {
    let names = Resource::ALL.map(Resource::name).join(",");
    let error = format!("not found: try GET /v1/{{{names}}} or POST {EVENTS_PATH}");
    error_response(StatusCode::NOT_FOUND, error)
}

fn error_response(status: StatusCode, error: String) -> Response {
    (status, Json(ErrorBody { error })).into_response()
}

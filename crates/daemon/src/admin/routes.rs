//! The paths of the admin server and their handlers.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::AdminContext;
use super::profile::{self, Profiles};

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn router(context: AdminContext, profiles: Arc<Profiles>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(context)
        .merge(profile::router(profiles))
        .fallback(async || {
            text_response(
                StatusCode::NOT_FOUND,
                "not found: try /healthz, /ready, /metrics or /debug/pprof",
            )
        })
        .layer(middleware::from_fn(without_body))
}

/// A line of text.
pub(super) fn text_response(status: StatusCode, text: impl std::fmt::Display) -> Response {
    (status, [(CONTENT_TYPE, PLAIN_TEXT)], format!("{text}\n")).into_response()
}

/// Rejects request bodies, and forbids caching of responses.
async fn without_body(request: Request, next: Next) -> Response {
    let mut response = if request.body().is_end_stream() {
        next.run(request).await
    } else {
        text_response(StatusCode::PAYLOAD_TOO_LARGE, "requests have no body here")
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn healthz(State(context): State<AdminContext>) -> Response {
    match context.heartbeat.overdue(Instant::now()) {
        None => text_response(StatusCode::OK, "ok"),
        Some(age) => text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            format_args!("no heartbeat of the main loop for {} s", age.as_secs()),
        ),
    }
}

async fn ready(State(context): State<AdminContext>) -> Response {
    let readiness = context.conditions.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    match serde_json::to_string_pretty(&readiness) {
        Ok(mut json) => {
            json.push('\n');
            (status, [(CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// Always OpenMetrics: Prometheus since 2.5 parses by `Content-Type`, whatever it accepted.
async fn metrics(State(context): State<AdminContext>) -> Response {
    let render = move || context.metrics.render(&context.conditions);
    match tokio::task::spawn_blocking(render).await {
        Ok(Ok(body)) => ([(CONTENT_TYPE, OPENMETRICS)], body).into_response(),
        Ok(Err(error)) => text_response(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;
    use node_config::Monitoring;

    #[tokio::test]
    async fn a_hanging_main_loop_is_unhealthy() {
        let context = AdminContext {
            heartbeat: Arc::default(),
            conditions: Arc::default(),
            metrics: Arc::default(),
        };
        let profiles = Arc::new(Profiles::new(&Monitoring::default()));
        let router = router(context.clone(), profiles);
        let get = async || {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 1000)
                .await
                .unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        assert_eq!(get().await, (StatusCode::OK, "ok\n".to_owned()));
        let past = Instant::now().checked_sub(Duration::from_secs(75)).unwrap();
        context.heartbeat.set(past);
        let text = "no heartbeat of the main loop for 75 s\n".to_owned();
        assert_eq!(get().await, (StatusCode::SERVICE_UNAVAILABLE, text));
        context.heartbeat.beat();
        assert_eq!(get().await.0, StatusCode::OK);
    }
}

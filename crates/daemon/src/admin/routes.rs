//! What is asked, and what is answered.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Sources;
use super::profile::{self, Profiles};
use node_core::metrics::Exposition;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// All that is served.
pub(super) fn router(sources: Sources, profiles: Arc<Profiles>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(sources)
        .merge(profile::router(profiles))
        .fallback(async || {
            say(
                StatusCode::NOT_FOUND,
                "here are /healthz, /ready, /metrics and /debug/pprof",
            )
        })
        .layer(middleware::from_fn(polite))
}

/// A line of text.
pub(super) fn say(status: StatusCode, text: impl std::fmt::Display) -> Response {
    (status, [(CONTENT_TYPE, PLAIN_TEXT)], format!("{text}\n")).into_response()
}

/// Nobody has anything to send us, and answers are of this moment.
async fn polite(request: Request, next: Next) -> Response {
    let mut response = if request.body().is_end_stream() {
        next.run(request).await
    } else {
        say(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here")
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn healthz(State(sources): State<Sources>) -> Response {
    match sources.heartbeat.silence(Instant::now()) {
        None => say(StatusCode::OK, "ok"),
        Some(silence) => say(
            StatusCode::SERVICE_UNAVAILABLE,
            format_args!("the main loop has not turned for {} s", silence.as_secs()),
        ),
    }
}

async fn ready(State(sources): State<Sources>) -> Response {
    let report = sources.conditions.report();
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    match serde_json::to_string_pretty(&report) {
        Ok(mut json) => {
            json.push('\n');
            (status, [(CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err(error) => say(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

async fn metrics(State(sources): State<Sources>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let exposition = Exposition::accepted_by(accept);
    let render = move || sources.metrics.render(&sources.conditions, exposition);
    match tokio::task::spawn_blocking(render).await {
        Ok(Ok(body)) => ([(CONTENT_TYPE, exposition.content_type())], body).into_response(),
        Ok(Err(error)) => say(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(error) => say(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use node_config::Monitoring;

    #[tokio::test]
    async fn a_main_loop_that_hangs_is_told_with_the_time_of_its_silence() {
        let sources = Sources {
            heartbeat: Arc::default(),
            conditions: Arc::default(),
            metrics: Arc::default(),
        };
        let profiles = Arc::new(Profiles::new(&Monitoring::default()));
        let router = TowerToHyperService::new(router(sources.clone(), profiles));
        let ask = async || {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            let response = router.call(request).await.unwrap();
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 1000)
                .await
                .unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        assert_eq!(ask().await, (StatusCode::OK, "ok\n".to_owned()));
        sources.heartbeat.be_silent_for(Duration::from_secs(75));
        let text = "the main loop has not turned for 75 s\n".to_owned();
        assert_eq!(ask().await, (StatusCode::SERVICE_UNAVAILABLE, text));
        sources.heartbeat.beat();
        assert_eq!(ask().await.0, StatusCode::OK);
    }
}

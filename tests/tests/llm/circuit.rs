//! The circuit of a provider and its pace, as calls meet them.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use clawnode_actors::llm::{
    Model, ModelEvent, Models, ProviderOptions, Wire, circuit::Circuits, profile::ModelProfiles,
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{
    circuit::{CircuitFailure, CircuitReport, CircuitState, LimitedResource},
    llm::{FailureClass, ModelRef},
};
use clawnode_tests::{
    model::{Act, ModelServer, Setup, Status},
    nats::free_port,
};
use futures_util::{StreamExt, poll, stream::BoxStream};

use crate::{KEY, ask, call, failed, retries, server, skip, text};

/// A circuit knows no wire; these two differ in the headers that pace calls.
const WIRES: [Wire; 2] = [Wire::Anthropic, Wire::Openai];

/// The providers of a process, whose only one is this server.
fn models(wire: Wire, server: &ModelServer, before: &Circuits) -> Models {
    models_at(wire, &crate::url_of(wire, server), before)
}

fn models_at(wire: Wire, url: &str, before: &Circuits) -> Models {
    let mut options = ProviderOptions::new(wire);
    options.base_url = Some(url.parse().unwrap());
    options.api_key_env = Some("KEY".to_owned());
    options.retry_first = Duration::from_millis(1);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let lookup = |name: &str| (name == "KEY").then(|| KEY.to_owned());
    let providers = BTreeMap::from([("p".to_owned(), options)]);
    Models::with(providers, &ModelProfiles::default(), &lookup, &clock, before)
}

fn client(models: &Models) -> Arc<dyn Model> {
    models.resolve(&ModelRef { provider: "p".to_owned(), model: "m".to_owned() }).unwrap()
}

fn report(models: &Models) -> CircuitReport {
    models.circuits().reports().remove("p").unwrap()
}

/// A refusal that its call does not try again.
fn refusal(status: u16, headers: &[(&str, &str)]) -> Act {
    let headers = headers.iter().chain(&[("x-should-retry", "false")]);
    let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Act::Status(Status { status, message: "busy".to_owned(), headers, body: None })
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Whether a failure names what is left of a wait: less by what the test took.
fn is_left(events: &[ModelEvent], wait: Duration) -> bool {
    let left = failed(events).retry_after_ms.map(Duration::from_millis);
    left.is_some_and(|left| left <= wait && left + Duration::from_secs(1) >= wait)
}

/// The call says that it waits for so many seconds, before it does.
async fn told_to_wait(stream: &mut BoxStream<'_, ModelEvent>, seconds: u64) {
    let Some(ModelEvent::Paced { wait }) = stream.next().await else { panic!("not told") };
    let most = Duration::from_secs(seconds);
    // Less by what the test took.
    assert!(wait <= most && wait > most / 2, "{wait:?}");
}

#[tokio::test]
async fn an_outage_opens_the_circuit_and_a_reply_closes_it() {
    for wire in WIRES {
        let outage = (0..5).map(|_| refusal(529, &[]));
        let trials = [Act::Stall, refusal(503, &[]), Act::say("ok"), Act::say("ok")];
        let server = server(outage.chain(trials)).await.unwrap();
        let models = models(wire, &server, &Circuits::default());
        let client = client(&models);
        for n in 1..=5 {
            let events = call(&*client, ask("hi")).await;
            let failure = failed(&events);
            assert_eq!(failure.status, Some(529), "{wire:?} {n}");
            let is_open = is_left(&events, Duration::from_secs(10));
            let is_as_due = if n == 5 { is_open } else { failure.retry_after_ms.is_none() };
            assert!(is_as_due, "{wire:?} {n}: {failure:?}");
        }
        // Open: not asked.
        let events = call(&*client, ask("hi")).await;
        let failure = failed(&events);
        assert_eq!((failure.class, failure.status), (FailureClass::Overloaded, None));
        assert!(failure.message.starts_with("not sent: the provider reported"), "{failure:?}");
        assert!(is_left(&events, Duration::from_secs(10)), "{events:?}");
        let wait = failure.retry_after_ms.unwrap();
        assert_eq!(server.count(), 5);
        let open = report(&models);
        assert_eq!((open.state, open.refused), (CircuitState::Open, 1));
        assert!(open.next_try.unwrap() > open.since);
        let [failures] = open.failures[..] else { panic!("{open:?}") };
        assert_eq!((failures.kind, failures.count), (CircuitFailure::Overloaded, 5));

        // Half-open: one call at a time, and the next one if that is given up.
        pass(Duration::from_millis(wait + 1)).await;
        let mut trial = client.stream(ask("hi"));
        tokio::select! {
            biased;
            event = trial.next() => panic!("{event:?}"),
            _ = server.asked(6) => {}
        }
        assert_eq!(report(&models).state, CircuitState::HalfOpen);
        let events = call(&*client, ask("hi")).await;
        assert_eq!(failed(&events).retry_after_ms, Some(2_000));
        drop(trial);
        let events = call(&*client, ask("hi")).await;
        assert_eq!(failed(&events).status, Some(503));
        assert!(is_left(&events, Duration::from_secs(20)), "{events:?}");
        assert_eq!(server.count(), 7);

        // The next one closes it.
        pass(Duration::from_secs(20)).await;
        for _ in 0..2 {
            assert_eq!(text(&call(&*client, ask("hi")).await), "ok");
        }
        let closed = report(&models);
        assert_eq!(closed.state, CircuitState::Closed);
        let changes: Vec<_> = closed.history.iter().map(|change| change.state).collect();
        let (open, half_open) = (CircuitState::Open, CircuitState::HalfOpen);
        assert_eq!(changes, [open, half_open, open, half_open, CircuitState::Closed]);
        assert_eq!(server.stop().await.unwrap().len(), 9);
    }
}

#[tokio::test]
async fn retries_end_when_the_circuit_opens_and_a_new_configuration_keeps_it() {
    for wire in WIRES {
        let refusals = (0..4).map(|_| refusal(500, &[]));
        let server = server(refusals.chain([Act::status(500, "busy")])).await.unwrap();
        let models = models(wire, &server, &Circuits::default());
        let client = client(&models);
        for _ in 0..4 {
            call(&*client, ask("hi")).await;
        }
        let events = call(&*client, ask("hi")).await;
        assert_eq!((retries(&events).len(), failed(&events).status), (0, Some(500)));
        assert!(is_left(&events, Duration::from_secs(10)), "{events:?}");

        let again = crate::circuit::models(wire, &server, models.circuits());
        let events = call(&*crate::circuit::client(&again), ask("hi")).await;
        assert_eq!((failed(&events).status, server.count()), (None, 5), "{wire:?}");
        let other = crate::server([Act::say("ok")]).await.unwrap();
        let moved = crate::circuit::models(wire, &other, again.circuits());
        let events = call(&*crate::circuit::client(&moved), ask("hi")).await;
        assert_eq!(text(&events), "ok", "another address has a circuit of its own");
        other.stop().await.unwrap();
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn requests_that_are_wrong_open_nothing() {
    for wire in WIRES {
        let wrong = [400, 401, 403, 404].repeat(3).into_iter().map(|status| refusal(status, &[]));
        let server = server(wrong.chain([Act::say("ok")])).await.unwrap();
        let models = models(wire, &server, &Circuits::default());
        for _ in 0..12 {
            call(&*client(&models), ask("hi")).await;
        }
        assert_eq!(text(&call(&*client(&models), ask("hi")).await), "ok");
        assert!(models.circuits().reports().is_empty(), "nothing to say");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn other_calls_of_a_model_wait_for_its_limit_or_end_at_once() {
    for wire in WIRES {
        let acts = [
            refusal(429, &[("retry-after", "7")]),
            Act::say("ok"),
            refusal(429, &[("retry-after", "60")]),
            Act::say("other"),
        ];
        let server = server(acts).await.unwrap();
        let models = models(wire, &server, &Circuits::default());
        let client = client(&models);
        call(&*client, ask("hi")).await;
        let mut stream = client.stream(ask("hi"));
        told_to_wait(&mut stream, 7).await;
        skip(&mut stream, Duration::from_millis(6_800)).await;
        assert!(poll!(stream.next()).is_pending());
        assert_eq!(server.count(), 1, "not sent before its time");
        skip(&mut stream, Duration::from_millis(300)).await;
        let rest: Vec<ModelEvent> = stream.collect().await;
        assert_eq!(text(&rest), "ok");

        call(&*client, ask("hi")).await;
        let events = call(&*client, ask("hi")).await;
        let failure = failed(&events);
        assert_eq!((failure.class, failure.status), (FailureClass::RateLimited, None));
        assert!(is_left(&events, Duration::from_mins(1)), "{events:?}");
        let mut other = ask("hi");
        other.model = "m-2".to_owned();
        assert_eq!(text(&call(&*client, other).await), "other", "another model has its own limit");
        assert_eq!(server.stop().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn calls_are_paced_by_what_is_left_of_a_limit() {
    let names = |wire| match wire {
        Wire::Anthropic => [
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ],
        _ => [
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ],
    };
    for wire in WIRES {
        let [limit, remaining, reset] = names(wire);
        let none_left = refusal(400, &[(limit, "2"), (remaining, "0"), (reset, "8")]);
        let server = server([none_left, Act::say("ok")]).await.unwrap();
        let models = models(wire, &server, &Circuits::default());
        let client = client(&models);
        call(&*client, ask("hi")).await;
        let [told] = &report(&models).limits[..] else { panic!("a limit is reported") };
        assert_eq!(
            (told.resource, told.limit, told.remaining),
            (LimitedResource::Requests, Some(2), 0)
        );
        assert_eq!(told.model, "m-1");
        // One of two is there again after half of the time.
        let mut stream = client.stream(ask("hi"));
        told_to_wait(&mut stream, 4).await;
        skip(&mut stream, Duration::from_millis(3_800)).await;
        assert!(poll!(stream.next()).is_pending());
        assert_eq!(server.count(), 1, "{wire:?}: not sent before its time");
        skip(&mut stream, Duration::from_millis(300)).await;
        let others: Vec<ModelEvent> = stream.collect().await;
        assert_eq!(text(&others), "ok");
        server.stop().await.unwrap();
    }
}

/// A provider that was not reached, as calls and probes find it. Which of the two a change is by is recorded.
#[tokio::test]
async fn probes_open_the_circuit_of_a_provider_that_is_gone_and_find_it_again() {
    for wire in [Wire::Anthropic, Wire::Openai, Wire::OpenaiResponses, Wire::Gemini, Wire::Ollama] {
        // Below the ports of outgoing connections, one of which could have it when the server comes back.
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let setup = || Setup { listen, api_key: Some(KEY.to_owned()), ..Setup::default() };
        let gone = ModelServer::start(setup()).await.unwrap();
        let url = crate::url_of(wire, &gone);
        let models = models_at(wire, &url, &Circuits::default());
        assert!(models.probe("p").unwrap().await.is_ok(), "{wire:?}");
        assert_eq!((report(&models).state, gone.count()), (CircuitState::Closed, 0), "no call");
        gone.stop().await.unwrap();
        for n in 1..=5 {
            let failure = models.probe("p").unwrap().await.unwrap_err();
            assert_eq!(failure.class, FailureClass::Unreachable, "{wire:?} {n}: {failure:?}");
        }
        let open = report(&models);
        assert_eq!(open.state, CircuitState::Open, "{wire:?}");
        assert_eq!(open.probe.unwrap().failure, Some(CircuitFailure::Unreachable));
        assert!(open.failures.is_empty(), "no call has failed");
        assert!(models.probe("p").unwrap().await.is_err());
        assert_eq!(report(&models).state, CircuitState::Open);

        let back = ModelServer::start(setup()).await.unwrap();
        for state in [CircuitState::HalfOpen, CircuitState::Closed, CircuitState::Closed] {
            models.probe("p").unwrap().await.unwrap();
            assert_eq!(report(&models).state, state, "{wire:?}");
        }
        let history = report(&models).history;
        assert!(history.iter().all(|change| change.by_probe), "{history:?}");
        assert_eq!((history.len(), back.count()), (3, 0));
    }
}

/// A list of models says nothing about how they do.
#[tokio::test]
async fn a_probe_takes_back_nothing_of_what_calls_found() {
    let server = server((0..5).map(|_| refusal(529, &[]))).await.unwrap();
    let models = models(Wire::Openai, &server, &Circuits::default());
    let client = client(&models);
    for _ in 0..4 {
        call(&*client, ask("hi")).await;
        models.probe("p").unwrap().await.unwrap();
    }
    assert_eq!(report(&models).state, CircuitState::Closed);
    call(&*client, ask("hi")).await;
    models.probe("p").unwrap().await.unwrap();
    assert_eq!(report(&models).state, CircuitState::Open, "four failures and one");
    pass(Duration::from_secs(11)).await;
    models.probe("p").unwrap().await.unwrap();
    assert_eq!(report(&models).state, CircuitState::HalfOpen, "a call has to try it");
    assert_eq!(server.stop().await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_wire_without_a_free_request_is_not_probed() {
    let mut options = ProviderOptions::new(Wire::Demo);
    options.probe = Some(Duration::from_secs(30));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let models = Models::new(BTreeMap::from([("p".to_owned(), options)]), &|_| None, &clock);
    assert_eq!(models.problems().len(), 1);
    assert!(models.probe("p").is_none());
}

//! The bus: messages to the present listeners, not stored.

use std::time::Duration;

use bytes::Bytes;
use clawnode_cluster::{Bus, BusEvent, BusMessage, RequestError, Subscription};
use clawnode_proto::Traceparent;
use futures_util::StreamExt;

use super::{
    BackendFixture, Result,
    support::{holds, same, soon},
};

pub async fn a_message_reaches_all_who_listen(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.hb.x", storage.prefix);
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(storage.bus.subscribe(subject.clone()).await?);
    }
    let trace = Traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let payload = Bytes::from_static(b"hello");
    storage.bus.publish(subject.clone(), Some(trace.clone()), payload.clone()).await?;
    for listener in &mut listeners {
        let found = message(listener).await?;
        let traceparent = Some(trace.clone());
        let (subject, payload) = (subject.clone(), payload.clone());
        same("the message", found, BusMessage { subject, reply: None, traceparent, payload })?;
    }
    Ok(())
}

pub async fn wildcards_take_in_what_they_should(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let full = |rest: &str| format!("{}.{rest}", storage.prefix);
    let mut star = storage.bus.subscribe(full("hb.*")).await?;
    let mut rest = storage.bus.subscribe(full("hb.>")).await?;
    let mut exact = storage.bus.subscribe(full("hb.a")).await?;
    for subject in ["hb", "other.a", "hb.a", "hb.a.b", "hb.c", "hb.a"] {
        let payload = Bytes::copy_from_slice(subject.as_bytes());
        storage.bus.publish(full(subject), None, payload).await?;
    }
    for expected in ["hb.a", "hb.c", "hb.a"] {
        same(
            "one token",
            message(&mut star).await?.payload,
            Bytes::from_static(expected.as_bytes()),
        )?;
    }
    for expected in ["hb.a", "hb.a.b", "hb.c", "hb.a"] {
        same(
            "all tokens",
            message(&mut rest).await?.payload,
            Bytes::from_static(expected.as_bytes()),
        )?;
    }
    for expected in ["hb.a", "hb.a"] {
        same(
            "exactly",
            message(&mut exact).await?.payload,
            Bytes::from_static(expected.as_bytes()),
        )?;
    }
    Ok(())
}

pub async fn messages_of_one_sender_stay_in_order(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.tok.x", storage.prefix);
    let mut listener = storage.bus.subscribe(subject.clone()).await?;
    for n in 0..500 {
        storage.bus.publish(subject.clone(), None, Bytes::from(n.to_string())).await?;
    }
    for n in 0..500 {
        same("the next", message(&mut listener).await?.payload, Bytes::from(n.to_string()))?;
    }
    Ok(())
}

pub async fn a_request_is_answered(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.rpc.x", storage.prefix);
    let mut requests = storage.bus.subscribe(subject.clone()).await?;
    let bus = storage.bus.clone();
    let responder = tokio::spawn(async move {
        for _ in 0..20 {
            let request = message(&mut requests).await?;
            let reply = request.reply.ok_or("a request says where its answer goes")?;
            let answer = [b"re: ", request.payload.as_ref()].concat();
            bus.publish(reply, None, Bytes::from(answer)).await?;
        }
        Result::Ok(())
    });
    for n in 0..20 {
        let answer = ask(&*storage.bus, &subject, &n.to_string(), Duration::from_secs(20)).await?;
        same("its own answer", answer, Bytes::from(format!("re: {n}")))?;
    }
    responder.await?
}

pub async fn a_request_without_listeners_fails(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.rpc.unheard", storage.prefix);
    match ask(&*storage.bus, &subject, "x", Duration::from_secs(20)).await {
        Err(RequestError::NoResponders { subject: named }) => same("its subject", named, subject),
        other => Err(format!("expected no responders, found {other:?}").into()),
    }
}

pub async fn a_request_without_answer_times_out(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.rpc.silent", storage.prefix);
    let mut listener = storage.bus.subscribe(subject.clone()).await?;
    match ask(&*storage.bus, &subject, "x", Duration::from_millis(50)).await {
        Err(RequestError::Timeout { .. }) => {}
        other => return Err(format!("expected a timeout, found {other:?}").into()),
    }
    same("it was asked", message(&mut listener).await?.payload, Bytes::from_static(b"x"))
}

pub async fn who_stopped_listening_is_not_asked(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let subject = format!("{}.rpc.gone", storage.prefix);
    let listener = storage.bus.subscribe(subject.clone()).await?;
    drop(listener);
    // A server may hear of it a moment later; in the end there is no listener.
    let unheard = async {
        loop {
            let asked = ask(&*storage.bus, &subject, "x", Duration::from_millis(50)).await;
            if let Err(RequestError::NoResponders { .. }) = asked {
                return;
            }
        }
    };
    soon("no listener is left", unheard).await?;
    holds(
        "publishing without listeners is fine",
        storage.bus.publish(subject, None, Bytes::new()).await.is_ok(),
    )
}

async fn ask(
    bus: &dyn Bus,
    subject: &str,
    payload: &str,
    timeout: Duration,
) -> std::result::Result<Bytes, RequestError> {
    bus.request(subject.to_owned(), Bytes::copy_from_slice(payload.as_bytes()), timeout).await
}

async fn message(listener: &mut Subscription) -> Result<BusMessage> {
    match soon("a message", listener.next()).await? {
        Some(BusEvent::Message(message)) => Ok(message),
        other => Err(format!("expected a message, found {other:?}").into()),
    }
}

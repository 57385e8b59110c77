//! The data directory of a node that does not run, opened for reading.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use clawnode_actors::session::Sessions;
use clawnode_cluster::SystemClock;
use clawnode_gateway::SessionRef;
use clawnode_kernel::Entities;
use clawnode_local as local;
use clawnode_local::LocalControl;
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode,
    api::{Call, JournalShow, JournalVerify, ListParams, Method, SessionParams, SessionsHistory},
    context_view::SessionsContext,
    feedback_view::FeedbackList,
    ledger::LedgerShow,
    offline::{ReplayRow, ReplayView},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{backend::named, kinds, session_filter, storage::refused};
use crate::{config::Config, start_error::StartError};

/// Rows of a list unless a limit is given.
const PAGE: u32 = 100;

/// A data directory, opened for reading; held shared until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    sessions: Sessions,
    _control: LocalControl,
}

impl DataDirectory {
    /// Opens the directory that the settings name.
    pub async fn open(config: &Config) -> Result<Self, StartError> {
        if config.cluster.nats.is_some() {
            let message = "no node answers, and only a node can read what is on NATS";
            return Err(StartError::unreachable("no_node", message)
                .hint("start one with `clawnode run`, or name one with `--url`"));
        }
        Self::at(config.node.data_dir.clone()).await
    }

    /// Opens this directory.
    pub async fn at(dir: PathBuf) -> Result<Self, StartError> {
        let opened = tokio::task::spawn_blocking(move || local::open_read_only(&dir)).await;
        let (storage, control) = opened
            .map_err(|error| StartError::failed("internal", error.to_string()))?
            .map_err(|error| refused(&error))?;
        let sessions = Sessions::of(kinds::entities(storage, Arc::new(SystemClock)));
        Ok(Self { sessions, _control: control })
    }

    /// The handle to its entities; only reading works.
    pub const fn entities(&self) -> &Entities {
        self.sessions.entities()
    }

    /// The ids of all entities.
    pub async fn all(&self) -> Result<Vec<EntityId>, ErrorBody> {
        let all = self.entities().all().await;
        all.map_err(|error| ErrorBody::new(error.code(), error.to_string()))
    }

    /// Answers `sessions.list`, `sessions.history`, `sessions.context`, `ledger.show`, `feedback.list`,
    /// `sessions.export`, `journal.show`, `journal.verify`, `quarantine.list`, `quarantine.show` and `parked.list` with the same
    /// documents as a node; any other method is `unsupported`.
    pub async fn call<C: Call>(&self, _: C, params: &C::Params) -> Result<C::Answer, ErrorBody> {
        let answer = self.answer(C::METHOD, json(params)?).await?;
        serde_json::from_value(answer)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
    }

    async fn feedback(&self, params: Value) -> Result<Value, ErrorBody> {
        let FeedbackList { session, cursor, limit } = read(params)?;
        let session = reference(&session)?;
        let limit = usize::try_from(limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
        let found = self.sessions.feedback(session.id, cursor.as_ref(), limit).await;
        json(found.map_err(|error| named(&session, error))?)
    }

    async fn context(&self, params: Value) -> Result<Value, ErrorBody> {
        let SessionsContext { session, at } = read(params)?;
        let session = reference(&session)?;
        let found = self.sessions.context(session.id, at).await;
        json(found.map_err(|error| named(&session, error))?)
    }

    async fn answer(&self, method: Method, params: Value) -> Result<Value, ErrorBody> {
        match method {
            Method::SessionsList => {
                let wanted = session_filter::query(read(params)?, self.sessions.now())?;
                let list = self.sessions.list(&wanted).await;
                json(list.map_err(|error| ErrorBody::new(error.code(), error.to_string()))?)
            }
            Method::SessionsHistory => {
                let SessionsHistory { session, cursor, limit } = read(params)?;
                let session = reference(&session)?;
                let limit = limit.unwrap_or(PAGE) as usize;
                let found = self.sessions.history_page(session.id, cursor.as_ref(), limit).await;
                json(found.map_err(|error| named(&session, error))?)
            }
            Method::SessionsContext => self.context(params).await,
            Method::LedgerShow => {
                let wanted: LedgerShow = read(params)?;
                let session = reference(&wanted.session)?;
                let found = self.sessions.ledger(session.id, &wanted).await;
                json(found.map_err(|error| named(&session, error))?)
            }
            Method::FeedbackList => self.feedback(params).await,
            Method::SessionsExport => {
                let SessionParams { session } = read(params)?;
                let session = reference(&session)?;
                let found = self.sessions.export(session.id).await;
                found.map_err(|error| named(&session, error))
            }
            Method::JournalShow => {
                let JournalShow { session, cursor, limit } = read(params)?;
                let limit = limit.unwrap_or(PAGE) as usize;
                let session = reference(&session)?;
                let events = self.entities().journal_page(session.id, cursor.as_ref(), limit).await;
                json(events.map_err(|error| named(&session, error))?)
            }
            Method::JournalVerify => {
                let JournalVerify { session } = read(params)?;
                let only = session.map(|text| id(&text)).transpose()?;
                let verdict = self.entities().verify(only).await;
                json(verdict.map_err(|error| ErrorBody::new(error.code(), error.to_string()))?)
            }
            Method::QuarantineList => {
                let ListParams { cursor, limit } = read(params)?;
                let after = cursor.map(|cursor| cursor.read(method)).transpose()?;
                let limit = limit.unwrap_or(PAGE) as usize;
                let list = self.entities().quarantined(after, limit).await;
                json(list.map_err(|error| ErrorBody::new(error.code(), error.to_string()))?)
            }
            Method::QuarantineShow => {
                let SessionParams { session } = read(params)?;
                let session = reference(&session)?;
                let found = self.entities().quarantine(session.id).await;
                json(found.map_err(|error| named(&session, error))?)
            }
            Method::ParkedList => {
                let ListParams { cursor, limit } = read(params)?;
                let limit = limit.unwrap_or(PAGE) as usize;
                json(self.entities().parked(cursor.as_ref(), limit).await?)
            }
            _ => Err(ErrorBody::new(
                ErrorCode::Unsupported,
                format!("`{}` needs a running node", method.as_str()),
            )
            .hint("start one with `clawnode up`")),
        }
    }

    /// Replays recorded turns without a model, and compares what the model would be shown with what
    /// it was shown; of one session, or of all. Entities of kinds that show people nothing are left
    /// out.
    pub async fn replay(&self, session: Option<&str>) -> Result<ReplayView, ErrorBody> {
        let ids = match session {
            Some(text) => vec![id(text)?],
            None => self.all().await?,
        };
        let mut sessions = Vec::with_capacity(ids.len());
        for id in ids {
            let Some((requests, problem)) = self.entities().replay(id).await else { continue };
            let key = self.entities().core(id).await.ok().and_then(|core| core.key);
            let session = key.unwrap_or_else(|| id.to_string());
            sessions.push(ReplayRow { session, requests, problem });
        }
        Ok(ReplayView { sessions })
    }
}

fn reference(text: &str) -> Result<SessionRef, ErrorBody> {
    text.parse().map_err(|error: <SessionRef as FromStr>::Err| {
        ErrorBody::new(ErrorCode::InvalidParams, error.to_string())
            .hint("`clawnode sessions list` shows the sessions there are")
    })
}

fn id(text: &str) -> Result<EntityId, ErrorBody> {
    reference(text).map(|session| session.id)
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, ErrorBody> {
    serde_json::from_value(params)
        .map_err(|error| ErrorBody::new(ErrorCode::InvalidParams, error.to_string()))
}

fn json<T: Serialize>(value: T) -> Result<Value, ErrorBody> {
    serde_json::to_value(value)
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
}

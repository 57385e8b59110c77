//! Makes the collections where they are missing, and refuses a server or a collection that does not fit.

use std::collections::HashMap;

use clawnode_memory::store::MemoryStoreError;
use qdrant_client::qdrant::{
    CollectionInfo, Condition, CreateCollection, CreateFieldIndexCollection, DeleteCollection,
    Distance, FieldType, Filter, GetCollectionInfoRequest, HealthCheckRequest, HnswConfigDiff,
    KeywordIndexParams, PayloadIndexParams, VectorParams, VectorParamsMap, VectorsConfig,
    payload_index_params::IndexParams, vectors_config::Config,
};
use semver::Version;
use tonic::Code;

use crate::{
    connection::{ServerFault, said},
    layout::{self, DENSE, PointNumber, key, what},
    server::{ServerPoints, WantedParts},
    state::random,
};

/// The first version with conditional writes; an older one would write without the condition.
const LEAST_VERSION: Version = Version::new(1, 16, 0);
/// What the points of each collection are found by.
const DOCUMENT_KEYS: &[&str] = &[key::SCOPE, key::GENERATION, key::ENTITY, key::DIGEST];
const STATE_KEYS: &[&str] =
    &[key::SCOPE, key::GENERATION, key::ENTITY, key::WHAT, key::TOKEN, key::IDENTITY];

// === impl ServerPoints ===

impl ServerPoints {
    /// Has the collections be there, before the first use and after each failure.
    pub(crate) async fn ready(&self) -> Result<(), MemoryStoreError> {
        self.connection.open()?;
        if self.connection.is_set_up() {
            return Ok(());
        }
        // Boxed: it is rare, and large.
        match Box::pin(self.set_up()).await {
            Ok(()) => {
                self.connection.works();
                Ok(())
            }
            Err(fault) => Err(self.connection.failed(fault)),
        }
    }

    /// Which store this is. All processes that use it read the same text, until it is lost.
    pub(crate) async fn identity(&self) -> Result<String, MemoryStoreError> {
        let number = PointNumber::of_store();
        let wanted = WantedParts::Only(key::IDENTITY);
        for _ in 0..2 {
            let found = self.get(&self.state, &[number.id()], wanted).await?;
            let known = found.iter().find_map(|point| layout::text(&point.payload, key::IDENTITY));
            if let Some(known) = known {
                return Ok(known.to_owned());
            }
            // One that another process has written meanwhile stays: its identity is never `none`.
            let only = Filter::must([Condition::matches(key::IDENTITY, "none".to_owned())]);
            let payload = layout::texts(&[(key::WHAT, what::STORE), (key::IDENTITY, &random())]);
            let point = layout::point(number, payload, None);
            self.put(&self.state, vec![point], Some(only)).await?;
        }
        let detail = "it does not keep what is written".to_owned();
        Err(self.connection.failed(ServerFault::Away(detail)))
    }

    /// Whether the index has all that the one had which answered while it was built. Its collections have to be there.
    pub(crate) async fn is_whole(&self) -> Result<bool, MemoryStoreError> {
        let wanted = WantedParts::Only(key::WHAT);
        let found = self.get(&self.state, &[PointNumber::of_whole().id()], wanted).await?;
        Ok(!found.is_empty())
    }

    /// The index has all that the one has which answered until now.
    pub(crate) async fn is_whole_now(&self) -> Result<(), MemoryStoreError> {
        let payload = layout::texts(&[(key::WHAT, what::WHOLE)]);
        let point = layout::point(PointNumber::of_whole(), payload, None);
        self.put(&self.state, vec![point], None).await
    }

    async fn set_up(&self) -> Result<(), ServerFault> {
        let request = HealthCheckRequest {};
        let mut health = self.connection.health();
        let health = self.connection.ask_plainly(health.health_check(request)).await;
        let health = health.map_err(|status| ServerFault::Away(said(&status)))?;
        match Version::parse(health.version.trim_start_matches('v')) {
            Ok(version) if version >= LEAST_VERSION => {}
            _ => {
                return Err(ServerFault::Unfit(format!(
                    "it is {} {}, and clawnode needs Qdrant {LEAST_VERSION} or newer; upgrade it",
                    health.title, health.version
                )));
            }
        }
        // In this order: a process that makes both begins with the documents, so a state without them has lost them.
        let has_state = self.info(&self.state).await?.is_some();
        if has_state && self.info(&self.documents).await?.is_none() {
            // It would go on to say that scopes are filled which are empty.
            self.remove_state().await?;
        }
        let documents = self.collection(&self.documents, self.dimensions, DOCUMENT_KEYS).await?;
        self.check_vectors(&documents)?;
        self.collection(&self.state, 0, STATE_KEYS).await?;
        Ok(())
    }

    /// What the server says of a collection, which is made if it is missing.
    async fn collection(
        &self,
        name: &str,
        dimensions: usize,
        keys: &[&str],
    ) -> Result<CollectionInfo, ServerFault> {
        let info = match self.info(name).await? {
            Some(info) => info,
            None => Box::pin(self.made(name, dimensions)).await?,
        };
        for key in keys.iter().filter(|key| !info.payload_schema.contains_key(**key)) {
            Box::pin(self.index(name, key)).await?;
        }
        Ok(info)
    }

    /// What the server says of a collection that it lacked.
    async fn made(&self, name: &str, dimensions: usize) -> Result<CollectionInfo, ServerFault> {
        let mut collections = self.connection.collections();
        let made = collections.create(creation(name, dimensions));
        let made = self.connection.ask_plainly(made).await;
        match (self.info(name).await?, made) {
            // It may have been another process that made it.
            (Some(info), _) => Ok(info),
            (None, Err(status)) => Err(ServerFault::Away(said(&status))),
            (None, Ok(_)) => {
                Err(ServerFault::Away(format!("it does not keep the collection `{name}`")))
            }
        }
    }

    async fn remove_state(&self) -> Result<(), ServerFault> {
        let request = DeleteCollection { collection_name: self.state.clone(), timeout: None };
        let mut collections = self.connection.collections();
        let removed = self.connection.ask_plainly(collections.delete(request)).await;
        removed.map(drop).map_err(|status| ServerFault::Away(said(&status)))
    }

    /// Has points be found by this part of theirs.
    async fn index(&self, name: &str, key: &str) -> Result<(), ServerFault> {
        let index = KeywordIndexParams {
            is_tenant: (key == key::SCOPE).then_some(true),
            ..KeywordIndexParams::default()
        };
        let request = CreateFieldIndexCollection {
            collection_name: name.to_owned(),
            wait: Some(true),
            field_name: key.to_owned(),
            field_type: Some(FieldType::Keyword.into()),
            field_index_params: Some(PayloadIndexParams {
                index_params: Some(IndexParams::KeywordIndexParams(index)),
            }),
            ..CreateFieldIndexCollection::default()
        };
        let mut points = self.connection.points();
        let indexed = self.connection.ask_plainly(points.create_field_index(request)).await;
        indexed.map(drop).map_err(|status| ServerFault::Away(said(&status)))
    }

    async fn info(&self, name: &str) -> Result<Option<CollectionInfo>, ServerFault> {
        let request = GetCollectionInfoRequest { collection_name: name.to_owned() };
        let mut collections = self.connection.collections();
        match self.connection.ask_plainly(collections.get(request)).await {
            Ok(answer) => Ok(answer.result),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(ServerFault::Away(said(&status))),
        }
    }

    /// Refuses a collection whose vectors are not those of the model.
    fn check_vectors(&self, info: &CollectionInfo) -> Result<(), ServerFault> {
        if self.dimensions == 0 {
            return Ok(());
        }
        let params = info.config.as_ref().and_then(|config| config.params.as_ref());
        let vectors = params.and_then(|params| params.vectors_config.as_ref()?.config.as_ref());
        let dense = match vectors {
            Some(Config::ParamsMap(named)) => named.map.get(DENSE),
            Some(Config::Params(_)) | None => None,
        };
        let found = dense.map(|dense| (dense.size, dense.distance()));
        let expected = u64::try_from(self.dimensions).unwrap_or(u64::MAX);
        if found == Some((expected, Distance::Dot)) {
            return Ok(());
        }
        let has = match found {
            Some((size, distance)) => format!("vectors of {size} numbers ({distance:?})"),
            None => format!("no vectors named `{DENSE}`"),
        };
        Err(ServerFault::Unfit(format!(
            "its collection `{}` has {has}, and the model gives {expected} (Dot); remove the collection, or set another `prefix` in `[memory.qdrant]`",
            self.documents
        )))
    }
}

fn creation(name: &str, dimensions: usize) -> CreateCollection {
    let size = u64::try_from(dimensions).unwrap_or(u64::MAX);
    let dense = VectorParams {
        size,
        // It keeps vectors as they are; with `Cosine`, the server would change their length.
        distance: Distance::Dot.into(),
        ..VectorParams::default()
    };
    let map = (dimensions > 0).then(|| (DENSE.to_owned(), dense));
    let map: HashMap<String, VectorParams> = map.into_iter().collect();
    CreateCollection {
        collection_name: name.to_owned(),
        vectors_config: Some(VectorsConfig {
            config: Some(Config::ParamsMap(VectorParamsMap { map })),
        }),
        // No graph: the server is not asked which vectors are near.
        hnsw_config: Some(HnswConfigDiff { m: Some(0), ..HnswConfigDiff::default() }),
        ..CreateCollection::default()
    }
}

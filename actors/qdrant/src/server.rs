//! What is asked of the server: reads and writes of points, each bounded.

use clawnode_memory::store::MemoryStoreError;
use qdrant_client::qdrant::{
    CountPoints, DeletePoints, Filter, GetPoints, PointId, PointStruct, PointsOperationResponse,
    PointsSelector, RetrievedPoint, ScrollPoints, UpdateResult, UpdateStatus, UpsertPoints,
    WithPayloadSelector, WithVectorsSelector, WriteOrdering, WriteOrderingType,
};

use crate::connection::{QdrantConnection, ServerFault};

/// Points that are read or written at once, with their texts and vectors.
const POINTS_ONCE: usize = 256;
/// Points that are listed at once, with a few words each.
const LISTED_ONCE: u32 = 4_096;

/// The server with the collections of one store. Its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct ServerPoints {
    pub(crate) connection: QdrantConnection,
    /// The collection of documents.
    pub(crate) documents: String,
    /// The collection of everything else that is known of scopes.
    pub(crate) state: String,
    /// Numbers of a vector; 0 if documents have none.
    pub(crate) dimensions: usize,
}

/// What is wanted of points.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedParts<'a> {
    /// This part of the payload.
    Only(&'a str),
    /// Its payload, without its vector.
    Payload,
    /// Its payload with its vector.
    All,
}

// === impl WantedParts ===

impl WantedParts<'_> {
    fn selectors(self) -> (WithPayloadSelector, WithVectorsSelector) {
        match self {
            Self::Only(key) => (vec![key].into(), false.into()),
            Self::Payload => (true.into(), false.into()),
            Self::All => (true.into(), true.into()),
        }
    }
}

// === impl ServerPoints ===

impl ServerPoints {
    /// The points with these ids that are there, in any order.
    pub(crate) async fn get(
        &self,
        collection: &str,
        ids: &[PointId],
        wanted: WantedParts<'_>,
    ) -> Result<Vec<RetrievedPoint>, MemoryStoreError> {
        let mut found = Vec::with_capacity(ids.len());
        let (payload, vectors) = wanted.selectors();
        for ids in ids.chunks(POINTS_ONCE) {
            let request = GetPoints {
                collection_name: collection.to_owned(),
                ids: ids.to_vec(),
                with_payload: Some(payload.clone()),
                with_vectors: Some(vectors.clone()),
                ..GetPoints::default()
            };
            let mut points = self.connection.points();
            let answer = self.connection.ask(points.get(request)).await?;
            found.extend(answer.result);
        }
        Ok(found)
    }

    /// The points that fit a filter, at most `most`.
    pub(crate) async fn list(
        &self,
        collection: &str,
        filter: Filter,
        wanted: WantedParts<'_>,
        most: usize,
    ) -> Result<Vec<RetrievedPoint>, MemoryStoreError> {
        let (mut found, mut offset) = (Vec::new(), None);
        let (payload, vectors) = wanted.selectors();
        loop {
            let left = most.saturating_sub(found.len());
            let limit = LISTED_ONCE.min(u32::try_from(left).unwrap_or(u32::MAX));
            if limit == 0 {
                return Ok(found);
            }
            let request = ScrollPoints {
                collection_name: collection.to_owned(),
                filter: Some(filter.clone()),
                offset,
                limit: Some(limit),
                with_payload: Some(payload.clone()),
                with_vectors: Some(vectors.clone()),
                ..ScrollPoints::default()
            };
            let mut points = self.connection.points();
            let answer = self.connection.ask(points.scroll(request)).await?;
            found.extend(answer.result);
            offset = answer.next_page_offset;
            if offset.is_none() {
                return Ok(found);
            }
        }
    }

    /// How many points fit a filter.
    pub(crate) async fn count(
        &self,
        collection: &str,
        filter: Filter,
    ) -> Result<usize, MemoryStoreError> {
        let request = CountPoints {
            collection_name: collection.to_owned(),
            filter: Some(filter),
            exact: Some(true),
            ..CountPoints::default()
        };
        let mut points = self.connection.points();
        let answer = self.connection.ask(points.count(request)).await?;
        let count = answer.result.map(|result| result.count).unwrap_or_default();
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Writes points in the place of those with their ids. With `only`, one that is there and does not fit it stays as it
    /// is.
    pub(crate) async fn put(
        &self,
        collection: &str,
        written: Vec<PointStruct>,
        only: Option<Filter>,
    ) -> Result<(), MemoryStoreError> {
        let mut rest = written;
        while !rest.is_empty() {
            let further = rest.split_off(rest.len().min(POINTS_ONCE));
            let request = UpsertPoints {
                collection_name: collection.to_owned(),
                wait: Some(true),
                points: rest,
                ordering: Some(in_order()),
                update_filter: only.clone(),
                ..UpsertPoints::default()
            };
            let mut points = self.connection.points();
            let answer = self.connection.ask(points.upsert(request)).await?;
            self.is_done(&answer)?;
            rest = further;
        }
        Ok(())
    }

    /// Removes points: those with these ids, or those that fit a filter.
    pub(crate) async fn remove(
        &self,
        collection: &str,
        removed: impl Into<PointsSelector>,
    ) -> Result<(), MemoryStoreError> {
        let request = DeletePoints {
            collection_name: collection.to_owned(),
            wait: Some(true),
            points: Some(removed.into()),
            ordering: Some(in_order()),
            ..DeletePoints::default()
        };
        let mut points = self.connection.points();
        let answer = self.connection.ask(points.delete(request)).await?;
        self.is_done(&answer)
    }

    /// Fails if the server has not done a change yet, although it was to wait for it.
    pub(crate) fn is_done(&self, answer: &PointsOperationResponse) -> Result<(), MemoryStoreError> {
        let status = answer.result.as_ref().map(UpdateResult::status);
        if status == Some(UpdateStatus::Completed) {
            return Ok(());
        }
        let detail = format!("a change is not done ({status:?})");
        Err(self.connection.failed(ServerFault::Away(detail)))
    }
}

/// Each change is visible to all before the next one: compare-and-set rests on it where Qdrant has several servers.
fn in_order() -> WriteOrdering {
    WriteOrdering { r#type: WriteOrderingType::Strong.into() }
}

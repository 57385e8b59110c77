//! The blobs: content under its own digest.

use bytes::Bytes;
use clawnode_proto::Digest;

use super::{BackendFixture, Result, support::same};

pub async fn content_is_found_by_its_digest(fixture: &dyn BackendFixture) -> Result {
    let blobs = fixture.fresh().await?.blobs;
    let content = Bytes::from_static(b"some content");
    let digest = blobs.put(content.clone()).await?;
    same("the digest", digest, Digest::of(&content))?;
    same("the content", blobs.get(digest).await?, Some(content))?;
    same("another digest", blobs.get(Digest::of(b"other")).await?, None)?;
    same("all", blobs.list().await?, vec![digest])
}

pub async fn storing_again_is_harmless(fixture: &dyn BackendFixture) -> Result {
    let blobs = fixture.fresh().await?.blobs;
    let content = Bytes::from_static(b"some content");
    let (one, two, three) = tokio::join!(
        blobs.put(content.clone()),
        blobs.put(content.clone()),
        blobs.put(content.clone())
    );
    let digest = one?;
    same(
        "the digests",
        (two?, three?, blobs.put(content.clone()).await?),
        (digest, digest, digest),
    )?;
    same("the content", blobs.get(digest).await?, Some(content))?;
    same("all", blobs.list().await?, vec![digest])
}

pub async fn a_deleted_blob_is_gone(fixture: &dyn BackendFixture) -> Result {
    let blobs = fixture.fresh().await?.blobs;
    let kept = blobs.put(Bytes::from_static(b"kept")).await?;
    let gone = blobs.put(Bytes::from_static(b"gone")).await?;
    blobs.delete(gone).await?;
    blobs.delete(gone).await?;
    same("the deleted", blobs.get(gone).await?, None)?;
    same("all", blobs.list().await?, vec![kept])?;
    blobs.put(Bytes::from_static(b"gone")).await?;
    same("stored again", blobs.get(gone).await?, Some(Bytes::from_static(b"gone")))
}

pub async fn blobs_of_any_size(fixture: &dyn BackendFixture) -> Result {
    let blobs = fixture.fresh().await?.blobs;
    for len in [0_usize, 1, 128 << 10, (128 << 10) + 1, 3 << 20] {
        let content: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
        let content = Bytes::from(content);
        let digest = blobs.put(content.clone()).await?;
        let is_same = blobs.get(digest).await?.as_ref() == Some(&content);
        same(&format!("{len} bytes"), is_same, true)?;
    }
    Ok(())
}

//! Servers, collections and options that do not fit.

use clawnode_memory::store::{FilledStore as _, MemoryStoreError};
use clawnode_qdrant::{
    QdrantOptions, QdrantStore,
    fixture::{FixtureOptions, QdrantFixture},
};
use qdrant_client::qdrant::{
    CreateCollection, VectorParams, VectorsConfig, collections_client::CollectionsClient,
    vectors_config::Config,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::{fixture, options, store};

async fn why(store: &QdrantStore) -> String {
    let failure = store.check().await.unwrap_err();
    assert!(store.away().is_some());
    failure.to_string()
}

#[tokio::test]
async fn an_older_server_is_refused() {
    for version in ["1.15.5", "development"] {
        let options = FixtureOptions { version: version.to_owned(), ..FixtureOptions::default() };
        let fixture = QdrantFixture::start(options).await.unwrap();
        let why = why(&store(&fixture)).await;
        assert!(why.contains(version) && why.contains("needs Qdrant 1.16.0"), "{why}");
        assert_eq!(fixture.collections(), [""; 0], "nothing is made there");
    }
}

#[tokio::test]
async fn a_collection_with_other_vectors_is_refused() {
    let fixture = fixture().await;
    store(&fixture).check().await.unwrap();
    let names = fixture.collections();
    assert!(names[0].contains("-test-") && names[0].ends_with("-4"), "{names:?}");
    let params = VectorParams { size: 3, distance: 3, ..VectorParams::default() };
    for config in [
        Config::Params(params),
        Config::ParamsMap(
            [("dense".to_owned(), params)]
                .into_iter()
                .collect::<std::collections::HashMap<_, _>>()
                .into(),
        ),
    ] {
        let fixture = QdrantFixture::start(FixtureOptions::default()).await.unwrap();
        let request = CreateCollection {
            collection_name: names[0].clone(),
            vectors_config: Some(VectorsConfig { config: Some(config) }),
            ..CreateCollection::default()
        };
        let mut client = CollectionsClient::connect(fixture.url()).await.unwrap();
        client.create(request).await.unwrap();
        let refused = store(&fixture).check().await.unwrap_err();
        assert!(matches!(refused, MemoryStoreError::Unfit { .. }), "{refused:?}");
        let why = refused.to_string();
        assert!(why.contains(&names[0]) && why.contains("the model gives 4"), "{why}");
    }
}

#[tokio::test]
async fn the_key_is_sent_and_never_shown() {
    let wanted = FixtureOptions { api_key: Some("right".to_owned()), ..FixtureOptions::default() };
    let fixture = QdrantFixture::start(wanted).await.unwrap();
    let with = |key: Option<&str>| {
        let options = QdrantOptions { api_key: key.map(Into::into), ..options(&fixture) };
        assert!(!format!("{options:?}").contains("right"));
        let store = QdrantStore::new(&options, None);
        assert!(!format!("{store:?}").contains("right"));
        store
    };
    with(Some("right")).unwrap().check().await.unwrap();
    for key in [None, Some("wrong")] {
        let why = why(&with(key).unwrap()).await;
        assert!(why.contains("refuses the key"), "{why}");
    }
    let refused = with(Some("two\nlines")).unwrap_err().to_string();
    assert!(!refused.contains("lines"), "{refused}");
}

#[tokio::test]
async fn tls_trusts_the_authorities_of_the_options() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&issuer_key).unwrap();
    let issuer = Issuer::new(params, issuer_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let tls = Some((own.pem(), key.serialize_pem()));
    let fixture =
        QdrantFixture::start(FixtureOptions { tls, ..FixtureOptions::default() }).await.unwrap();
    let with = |ca: Option<&[u8]>| {
        let options = QdrantOptions { ca: ca.map(<[u8]>::to_vec), ..options(&fixture) };
        QdrantStore::new(&options, None)
    };
    let ca = authority.pem();
    with(Some(ca.as_bytes())).unwrap().check().await.unwrap();
    let stranger = KeyPair::generate().unwrap();
    let stranger = CertificateParams::new(Vec::new()).unwrap().self_signed(&stranger).unwrap();
    let why = why(&with(Some(stranger.pem().as_bytes())).unwrap()).await;
    assert!(why.to_lowercase().contains("certificate"), "{why}");
}

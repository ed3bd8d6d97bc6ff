-- The links of chains of evidence. A ledger without a chain has no row. They stay when their rows go.
CREATE TABLE link (
    chain     BIGINT NOT NULL,
    number    BIGINT NOT NULL,
    tenant    TEXT COLLATE "C" NOT NULL,
    at        BIGINT NOT NULL,
    body      BYTEA NOT NULL,                  -- digests of rows
    signature BYTEA NOT NULL,
    PRIMARY KEY (chain, number)
);

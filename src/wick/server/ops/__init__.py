"""Operations: metrics, quotas, redaction, the event bus, process statistics and exports."""

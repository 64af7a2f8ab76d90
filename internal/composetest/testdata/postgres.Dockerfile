# Stands in for postgres:17-alpine where no registry can be reached.
FROM localhost/base
ENV PGDATA=/var/lib/postgresql/data
COPY postgres-entrypoint /usr/local/bin/
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/postgres-entrypoint"]
CMD ["postgres", "-c", "listen_addresses=*"]

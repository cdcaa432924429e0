class FakeInternet:
    resolver="203.0.113.53"
    def __enter__(self): return self
    def __exit__(self,*a): pass

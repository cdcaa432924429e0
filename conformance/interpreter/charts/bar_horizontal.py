import matplotlib.pyplot as plt

plt.barh(["a", "b"], [3, 5], label="2023")
plt.title("Lying bars")
plt.xlabel("Much (kg)")
plt.ylabel("Who")
plt.show()
